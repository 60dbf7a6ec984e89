// Rows of the heat map, pooled by powers of two, so that a redraw costs pixels and not ranks.

// Cells are kept as how bad they are, so that pooling is a maximum: never a mean, which would hide one rank in 10,000.
const CODE_OF_WORST = CELLS.map((_, worst) => CELLS.findIndex((cell) => cell.worst === worst));

class HeatRows {
  constructor(group, view) {
    this.group = group;
    this.columns = group.lastSeq - group.firstSeq + 1;
    this.members = orderOfMembers(group, view);
    this.bank = unpackRows(group, this.columns);
    this.levels = [Int32Array.from(this.members, (member) => group.rowOf[member])];
    this.pooled = new Map();
    this.bands = bandsOf(this.members, group, view);
    const last = this.bands[this.bands.length - 1];
    this.units = last.start + last.length;
    while (this.levels[this.levels.length - 1].length > 1) this.levels.push(this.poolPairs(this.levels[this.levels.length - 1]));
  }

  poolPairs(lower) {
    const upper = new Int32Array(Math.ceil(lower.length / 2));
    for (let i = 0; i < upper.length; i++) upper[i] = this.pool(lower[2 * i], lower[Math.min(2 * i + 1, lower.length - 1)]);
    return upper;
  }

  /** The row that shows the worst of two. Members that did the same share rows, so most pairs were pooled before. */
  pool(a, b) {
    if (a === b) return a;
    const key = Math.min(a, b) * 2 ** 26 + Math.max(a, b);
    let id = this.pooled.get(key);
    if (id === undefined) {
      id = this.bank.push(worstOfRows(this.bank[a], this.bank[b])) - 1;
      this.pooled.set(key, id);
    }
    return id;
  }

  /** Ids of the few rows that together cover members from up to to, at the level that fits their number. */
  covering(from, to) {
    const level = Math.min(this.levels.length - 1, Math.floor(Math.log2(Math.max(1, to - from))));
    const rows = this.levels[level];
    const last = (to - 1) >> level;
    const ids = [];
    for (let i = from >> level; i <= last; i++) if (!ids.includes(rows[i])) ids.push(rows[i]);
    return ids;
  }

  /** Where a place in the order stands on the picture's scale, and the other way round. */
  unitOf(place) {
    const band = this.bands.findLast((one) => one.from <= place);
    return band.start + ((place - band.from) / (band.to - band.from)) * band.length;
  }

  placeAt(unit) {
    const band = this.bands.findLast((one) => one.start <= unit) ?? this.bands[0];
    const place = band.from + Math.floor(((unit - band.start) / band.length) * (band.to - band.from));
    return Math.min(place, band.to - 1);
  }

  /** How bad the cell of one member is, by its place in the order. */
  worstAt(place, column) {
    return this.bank[this.levels[0][place]][column];
  }
}

/** A plain loop: where no two of 10,000 ranks are alike, this runs over 20 million cells. */
function worstOfRows(one, two) {
  const worst = one.slice();
  for (let c = 0; c < worst.length; c++) if (two[c] > worst[c]) worst[c] = two[c];
  return worst;
}

/** Small cohorts on top, then by progress, then rows that are alike together. */
function orderOfMembers(group, view) {
  const { job, indexOf } = view;
  const cohort = Array.from(group.ranks, (rank) => job.cohort[indexOf.get(rank)]);
  const sizes = new Map();
  cohort.forEach((c) => sizes.set(c, (sizes.get(c) ?? 0) + 1));
  return Array.from(group.ranks, (_, m) => m).sort(
    (a, b) =>
      (cohort[a] < 0) - (cohort[b] < 0) ||
      sizes.get(cohort[a]) - sizes.get(cohort[b]) ||
      cohort[a] - cohort[b] ||
      group.completed[a] - group.completed[b] ||
      group.rowOf[a] - group.rowOf[b] ||
      group.ranks[a] - group.ranks[b],
  );
}

// Share of the picture that the smallest cohort gets: one rank in 10,000 would be less than a pixel high.
const LEAST_BAND = 0.04;

/** Runs of one cohort in the order, each with its length on the scale: its number of ranks, or more if it is tiny. */
function bandsOf(members, group, view) {
  const bands = [];
  members.forEach((member, place) => {
    const cohort = view.job.cohort[view.indexOf.get(group.ranks[member])];
    if (bands[bands.length - 1]?.cohort !== cohort) bands.push({ cohort, from: place, to: place, start: 0, length: 0 });
    bands[bands.length - 1].to = place + 1;
  });
  let start = 0;
  for (const band of bands) {
    band.start = start;
    band.length = Math.max(band.to - band.from, members.length * LEAST_BAND);
    start += band.length;
  }
  return bands;
}

function unpackRows(group, columns) {
  const worstOf = Uint8Array.from(CELLS, (cell) => cell.worst);
  const rows = [];
  for (let r = 0; r + 1 < group.rowStart.length; r++) {
    const row = new Uint8Array(columns);
    let at = 0;
    for (let run = group.rowStart[r]; run < group.rowStart[r + 1]; run++) {
      row.fill(worstOf[group.runCode[run]], at, (at += group.runLength[run]));
    }
    rows.push(row);
  }
  return rows;
}
