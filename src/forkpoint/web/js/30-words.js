// What the closed vocabularies of a verdict are called on the page.

const CAUSES = {
  "divergent-path": "Ranks took different paths",
  "order-inversion": "Ranks made the same calls in a different order",
  "metadata-mismatch": "Ranks made the same call with different data",
  "host-stall": "A rank is held up in its own code",
  "gpu-stall": "Work on a GPU does not finish",
  transport: "The network between ranks failed",
  "rank-lost": "A rank's process ended",
  "never-joined": "A rank never joined",
  straggler: "A rank is slow, not stuck",
  "silent-corruption": "Numbers went wrong without an error",
  healthy: "Nothing is wrong",
  inconclusive: "The evidence does not decide",
};

const ACTIONS = {
  "fix-code": "Fix the code",
  "fix-code-or-storage": "Fix the code, or the storage it waits for",
  "fix-code-or-hardware": "Fix the code, or check the hardware",
  "replace-node": "Replace the node",
  "replace-or-retry": "Replace the node, or retry",
  "raise-timeout": "Raise the timeout",
  investigate: "Gather more evidence",
  none: "Nothing to do",
};

// Index: the state code of the picture. `worst` orders them where one pixel stands for many ranks.
const STATES = [
  { name: "silent", letter: "S", worst: 3, says: "no dump" },
  { name: "waiting", letter: "W", worst: 1, says: "in the operation, waiting for others" },
  { name: "ahead", letter: "A", worst: 2, says: "past the point where others are" },
  { name: "behind", letter: "B", worst: 6, says: "has not reached it" },
  { name: "elsewhere", letter: "E", worst: 5, says: "in another operation or group" },
  { name: "agreed", letter: ".", worst: 0, says: "nothing pending here" },
  { name: "lost", letter: "X", worst: 4, says: "its process ended" },
];

// Index: the cell code of the heat map. `worst` decides which cell a pixel shows: never a mean.
const CELLS = [
  { name: "no evidence", worst: 1, pattern: "dots" },
  { name: "completed", worst: 0, pattern: "plain" },
  { name: "started", worst: 2, pattern: "plain" },
  { name: "issued", worst: 3, pattern: "plain" },
  { name: "not reached", worst: 4, pattern: "stripes" },
  { name: "differs", worst: 5, pattern: "solid" },
];

// Shapes of timeline marks, as SVG paths in a box of 16: the first whose words occur in the kind.
const MARKS = [
  { name: "Xid", words: ["xid", "gpu", "ecc", "nvlink"], path: "M8 1 L15 8 L8 15 L1 8 Z" },
  { name: "watchdog", words: ["watchdog", "timeout", "timed out"], path: "M8 1 L15 15 L1 15 Z" },
  { name: "exception", words: ["exception", "error", "traceback", "abort"], path: "M3 1 L8 6 L13 1 L15 3 L10 8 L15 13 L13 15 L8 10 L3 15 L1 13 L6 8 L1 3 Z" },
  { name: "kill or exit", words: ["kill", "signal 9", "oom", "exit", "left", "leaving", "lost"], path: "M5 1 H11 L15 5 V11 L11 15 H5 L1 11 V5 Z M4 7 V9 H12 V7 Z" },
  { name: "network", words: ["network", "socket", "connection"], path: "M8 1 A7 7 0 1 1 7.99 1 Z M8 5 A3 3 0 1 0 8.01 5 Z" },
  { name: "dump", words: ["dump"], path: "M2 2 H14 V14 H2 Z" },
  { name: "stack", words: ["stack", "thread"], path: "M1 2 H15 V5 H1 Z M1 6.5 H15 V9.5 H1 Z M1 11 H15 V14 H1 Z" },
  { name: "operation", words: ["completed", "issued", "started"], path: "M8 2 A6 6 0 1 1 7.99 2 Z" },
];
const OTHER_MARK = { name: "other", path: "M6 1 H10 V6 H15 V10 H10 V15 H6 V10 H1 V6 H6 Z" };

function markOf(kind) {
  const lower = kind.toLowerCase();
  return MARKS.find((mark) => mark.words.some((word) => lower.includes(word))) ?? OTHER_MARK;
}

function markPicture(mark) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", `mark mark-${mark.name.replace(/\W+/g, "-").toLowerCase()}`);
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", mark.path);
  path.setAttribute("fill-rule", "evenodd");
  svg.append(path);
  return svg;
}

function stateBadge(state) {
  const badge = make("span", `badge state-${STATES[state].name}`, STATES[state].letter);
  badge.title = STATES[state].name;
  return badge;
}

/** The state of a cohort: its first rank's in the picture, which knows of lost ranks too, else its role's. */
function stateOfCohort(view, ranks, role) {
  if (view.job.drawn && ranks.count) return view.job.state[view.indexOf.get(ranks.first)];
  const known = STATES.findIndex((state) => state.name === role);
  return known < 0 ? 5 : known;
}
