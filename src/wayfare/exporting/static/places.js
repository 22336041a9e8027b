// Where a photo was taken: the nearest descriptors of the index, as places, and how sure that is. As wayfare.places.
import { meanSpot, metres } from "./earth.js";

const TOP = 20, AGREEING = 10, FIRST_LOOK = 128, LAST_LOOK = 8192;
const finite = (value) => (Number.isFinite(value) ? value : null);

export class Places {
  constructor(facts, descriptors, positions, groups) {
    Object.assign(this, { facts, descriptors, positions, groups, count: facts.count });
  }

  photo(row) {
    const [easting, northing, latitude, longitude] = this.positions.subarray(4 * row, 4 * row + 4);
    return { easting, northing, latitude, longitude, group: this.groups[row] };
  }

  spot(row) {
    const { easting, northing, latitude, longitude, group } = this.photo(row);
    const [city, zone] = this.facts.groups[group] ?? ["", ""];
    return { latitude: finite(latitude), longitude: finite(longitude), easting: finite(easting), northing: finite(northing), city, zone };
  }

  nearest(descriptor) {
    const { dimension } = this.facts, squared = new Float64Array(this.count);
    for (let row = 0, at = 0; row < this.count; row += 1) {
      let sum = 0;
      for (let place = 0; place < dimension; place += 1, at += 1) {
        const apart = descriptor[place] - this.descriptors[at];
        sum += apart * apart;
      }
      squared[row] = sum;
    }
    const rows = Array.from({ length: this.count }, (_, row) => row);
    rows.sort((a, b) => squared[a] - squared[b] || a - b);
    return { rows, distances: rows.map((row) => Math.sqrt(squared[row])) };
  }

  // Photos of the index around one of them, for a map.
  around(row, most) {
    const middle = this.photo(row), found = [];
    for (let other = 0; other < this.count && found.length < most; other += 1) {
      const photo = this.photo(other);
      if (photo.group === middle.group) found.push([photo.easting, photo.northing]);
    }
    return found;
  }

  // The first `most` places among so many of the nearest, as lists of places in the list.
  grouped(photos, most) {
    const places = [];
    let left = photos.map((_, at) => at);
    while (left.length && places.length < most) {
      const first = left[0];
      const here = left.filter((at) => at === first || metres(photos[at], photos[first]) <= this.facts.radius);
      const taken = new Set(here);
      places.push(here);
      left = left.filter((at) => !taken.has(at));
    }
    return places;
  }

  // What `wayfare locate --json` says of one photo.
  locate(descriptor, name, k = 5) {
    const all = this.nearest(descriptor);
    let width = Math.max(FIRST_LOOK, TOP, 4 * k), places, photos;
    for (;;) {
      photos = all.rows.slice(0, width).map((row) => this.photo(row));
      places = this.grouped(photos, k);
      if (places.length >= k || width >= Math.min(this.count, LAST_LOOK)) break;
      width *= 8;
    }
    const { radius, calibration } = this.facts;
    const away = photos.map((photo) => metres(photo, photos[0]));
    away[0] = 0;
    const distances = all.distances.slice(0, TOP), here = away.slice(0, TOP).map((far) => far <= radius);
    here[0] = true;
    const missing = here.indexOf(false);
    const other = missing >= 0 ? distances[missing] : distances[distances.length - 1];
    const members = distances.map((_, at) => at).filter((at) => here[at]);
    let weights = members.map((at) => Math.max(other - distances[at], 0));
    if (!weights.some((weight) => weight > 0)) weights = members.map((at) => (distances[at] === distances[0] ? 1 : 0));
    const mean = meanSpot(members.map((at) => photos[at]), weights);
    const following = here.slice(1, AGREEING);
    const scores = {
      nearest: distances[0], ratio: other > 0 ? distances[0] / other : 1,
      agreement: following.length ? following.filter(Boolean).length / following.length : 0,
    };
    let confidence = null;
    if (calibration) {
      const values = Object.values(scores);
      const sum = values.reduce((total, value, at) => total
        + ((value - calibration.centre[at]) / calibration.scale[at]) * calibration.weights[at], calibration.bias);
      confidence = 1 / (1 + Math.exp(-sum));
    }
    const threshold = calibration ? calibration.threshold : null;
    const [city, zone] = this.facts.groups[photos[0].group] ?? ["", ""];
    const match = (at) => ({
      file: this.facts.names[all.rows[at]], row: all.rows[at], metres: finite(away[at]), distance: all.distances[at], ...this.spot(all.rows[at]),
    });
    return {
      photo: name, unknown: confidence === null || threshold === null ? null : confidence < threshold, confidence, scores,
      position: {
        latitude: finite(mean.latitude ?? NaN), longitude: finite(mean.longitude ?? NaN), easting: finite(mean.easting), northing: finite(mean.northing),
        city, zone, photos: weights.filter((weight) => weight > 0).length, spread_m: mean.spread,
      },
      places: places.map((members) => {
        const [first] = members;
        return { ...this.spot(all.rows[first]), metres: finite(away[first]), distance: all.distances[first], matches: members.map(match) };
      }),
    };
  }
}
