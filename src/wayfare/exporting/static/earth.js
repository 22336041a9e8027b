// Latitude and longitude (WGS 84), metres on the ground, and the mean of several positions: as wayfare.io.earth does it.
const RADIUS = 6378137.0, E2 = 6.69437999014e-3, MEAN = 6371009.0;
const radians = (degrees) => (degrees * Math.PI) / 180;

export const fromCentre = (latitude, longitude) => {
  const [a, b] = [radians(latitude), radians(longitude)];
  const across = RADIUS / Math.sqrt(1 - E2 * Math.sin(a) ** 2);
  const flat = across * Math.cos(a);
  return [flat * Math.cos(b), flat * Math.sin(b), across * (1 - E2) * Math.sin(a)];
};

const toMetres = (place, origin) => {
  const [latitude, longitude] = origin.map(radians);
  const [here, there] = [fromCentre(...place), fromCentre(...origin)];
  const [x, y, z] = here.map((value, axis) => value - there[axis]);
  const outwards = Math.cos(longitude) * x + Math.sin(longitude) * y;
  return [Math.cos(longitude) * y - Math.sin(longitude) * x, Math.cos(latitude) * z - Math.sin(latitude) * outwards];
};

const toDegrees = (metres, origin) => {
  const wide = Math.sqrt(1 - E2 * Math.sin(radians(origin[0])) ** 2);
  const degrees = 180 / Math.PI;
  const unit = [degrees * wide ** 3 / (RADIUS * (1 - E2)), degrees * wide / (RADIUS * Math.cos(radians(origin[0])))];
  const moved = (place, by) => [place[0] + by[1] * unit[0], place[1] + by[0] * unit[1]];
  let place = moved(origin, metres);
  for (let step = 0; step < 6; step += 1) {
    const now = toMetres(place, origin);
    place = moved(place, [metres[0] - now[0], metres[1] - now[1]]);
  }
  return place;
};

// A photo is {easting, northing, latitude, longitude, group}; how far apart two are, Infinity where that is not known.
export const metres = (one, other) => {
  if (one.group === other.group && one.group >= 0) {
    return Math.hypot(one.easting - other.easting, one.northing - other.northing);
  }
  const [a, b] = [fromCentre(one.latitude, one.longitude), fromCentre(other.latitude, other.longitude)];
  const straight = Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
  const around = 2 * MEAN * Math.asin(Math.min(straight / (2 * MEAN), 1));
  return Number.isFinite(around) ? around : Infinity;
};

export const meanSpot = (photos, weights) => {
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const same = photos.map((photo) => photo.group === photos[0].group);
  const all = sum(weights.filter((_, at) => same[at]));
  const shares = weights.map((weight, at) => (same[at] ? weight / all : 0));
  const middle = [sum(photos.map((photo, at) => shares[at] * photo.easting)),
    sum(photos.map((photo, at) => shares[at] * photo.northing))];
  const spread = Math.sqrt(sum(photos.map((photo, at) => shares[at]
    * ((photo.easting - middle[0]) ** 2 + (photo.northing - middle[1]) ** 2))));
  const known = photos.map((photo) => Number.isFinite(photo.latitude) && Number.isFinite(photo.longitude));
  let place = [null, null];
  if (known[0]) {
    const origin = [photos[0].latitude, photos[0].longitude];
    const total = sum(weights.filter((_, at) => known[at]));
    const moved = [0, 0];
    photos.forEach((photo, at) => {
      if (!known[at]) return;
      const apart = toMetres([photo.latitude, photo.longitude], origin);
      moved[0] += (weights[at] / total) * apart[0];
      moved[1] += (weights[at] / total) * apart[1];
    });
    place = toDegrees(moved, origin);
  }
  return { latitude: place[0], longitude: place[1], easting: middle[0], northing: middle[1], spread };
};
