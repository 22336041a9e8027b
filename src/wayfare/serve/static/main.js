// Loads what a page needs. Each part of the page has a module of its own.
import { fillParts } from "./parts.js";
import { watchPhotos } from "./photo.js";
import { watchRuns } from "./runs.js";
import { drawSettings } from "./settings.js";
import { watchFederation } from "./federation.js";

fillParts(document);
watchPhotos();
watchRuns();
drawSettings();
watchFederation();
