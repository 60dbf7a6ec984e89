// The two inlined documents: the verdict (JSON) and the picture (columns of numbers, deflated).

const COLUMN = {
  u8: Uint8Array,
  i16: Int16Array,
  i32: Int32Array,
  u32: Uint32Array,
  f64: Float64Array,
};

function readVerdict() {
  return JSON.parse(document.getElementById("verdict").textContent, (key, value) => {
    if (key === "sides") return value?.map(Ranks.read) ?? [];
    return (key === "ranks" || key === "suspects") && value.ranges !== undefined ? Ranks.read(value) : value;
  });
}

/** The job as the picture has it, or null where the report carries none. */
async function readPicture() {
  const encoded = document.getElementById("picture").textContent.trim();
  if (!encoded) return null;
  const packed = Uint8Array.from(atob(encoded), (c) => c.charCodeAt(0));
  return jobOf(await inflate(packed));
}

async function inflate(packed) {
  const reader = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate")).getReader();
  const parts = [];
  let length = 0;
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    parts.push(next.value);
    length += next.value.length;
  }
  const whole = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole.buffer;
}

function jobOf(buffer) {
  const headerLength = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, headerLength)));
  const body = buffer.slice(4 + headerLength);
  const columns = {};
  for (const { name, type, at, count } of header.sections) columns[name] = new COLUMN[type](body, at, count);
  return {
    drawn: true,
    ranks: columns.rank,
    state: columns.state,
    suspect: columns.suspect,
    cohort: columns.cohort,
    host: columns.host,
    local: columns.local,
    position: columns.position,
    hosts: header.hosts,
    axes: header.axes.map(([name, size]) => ({ name, size })),
    ops: header.ops.map(([name, code]) => ({ name, code })),
    groups: header.groups.map((group, g) => groupOf(group, g, columns)),
    groupsLeftOut: header.groups_left_out,
    lanes: header.lanes.map((lane) => ({ ...lane, ranks: Ranks.read(lane.ranks) })),
    sources: header.sources,
    arrivals: header.arrivals,
  };
}

function groupOf(group, g, columns) {
  const own = (name) => columns[`g${g}.${name}`];
  return {
    name: group.name,
    desc: group.desc,
    kind: group.kind,
    firstSeq: group.first_seq,
    lastSeq: group.last_seq,
    isDivergence: group.divergence,
    ranks: own("ranks"),
    completed: own("completed"),
    issued: own("issued"),
    rowOf: own("row_of"),
    rowStart: own("row_start"),
    runLength: own("run_length"),
    runCode: own("run_code"),
    op: own("op"),
  };
}

/** What can be filtered where nothing can be drawn: the ranks that the verdict names. */
function jobWithoutPicture(verdict) {
  const named = new Set();
  const add = (rank) => void named.add(rank);
  verdict.suspects.some(add);
  verdict.timeline.forEach((moment) => moment.ranks.some(add));
  verdict.evidence.forEach(({ rank }) => rank !== null && add(rank));
  verdict.hypotheses.flatMap(ranksNamed).forEach((ranks) => ranks.some(add));
  verdict.divergence?.group.ranks.some(add);
  const ranks = Int32Array.from(named).sort();
  return {
    drawn: false,
    ranks,
    state: new Uint8Array(ranks.length),
    suspect: Uint8Array.from(ranks, (rank) => verdict.suspects.has(rank)),
    cohort: new Int16Array(ranks.length).fill(-1),
    host: new Int32Array(ranks.length).fill(-1),
    local: new Int16Array(ranks.length).fill(-1),
    hosts: [],
    axes: [],
    ops: [],
    groups: [],
    groupsLeftOut: 0,
    lanes: [],
    sources: [],
    arrivals: [],
  };
}
