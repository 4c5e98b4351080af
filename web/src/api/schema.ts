// Made by web/types.mjs from memoird's OpenAPI description (web/make-types.mjs): do not edit.

/** RFC 9457. Queries that make no sense add part, at and len: which argument, and which bytes of it. */
export interface Problem {
  type: string
  title: string
  status: number
  detail: string
  instance?: string
}

export interface LoginRequest {
  code: string
}

export interface Login {
  user: string
  role: "read" | "control"
}

export interface Logout {
  logged_out: true
}

/** Rows of a table, as memoir query --json has them. What is not known is null, never 0. */
export interface Table {
  schema: "memoir.query/1"
  time: Time
  table: string
  columns: Column[]
  /** Objects by column; with shape=arrays, arrays in the order of the columns. */
  rows: (Record<string, unknown> | unknown[])[]
  /** rows before the limit */
  matched: number
  /** rows past what an answer holds */
  left_out?: number
  /** something could not be read in time */
  incomplete?: boolean
  at_least?: Cells
  estimate?: Cells
  /** of the table exited: whether ends of processes are seen */
  exits?: Record<string, unknown>
  /** of the view leaks: how long call sites were watched, in seconds */
  watch?: {
    /** that were looked at */
    books: number
    /** leaks found since memoird started that no longer grow, the latest first */
    stopped: ({
      pid: number
      program: string
      /** file and offset of the place in the code */
      frame: string | null
      found: Time
      last: Time
      /** that it held last */
      bytes: number
      /** its process ended, or called exec */
      ended: boolean
    })[]
    /** watched for long enough for verdicts */
    ready: boolean
    watched: number
    needs: number
    sites: number
    left_out: number
    looks: number
  }
  cluster?: Gathered
}

/** of answers of several nodes: who answered. A node that is missing is not part of any figure. */
export interface Gathered {
  /** nodes that should have answered */
  expected: number
  answered: number
  missing: {
    node: string
    id: string
    /** it answered that it may not, or cannot */
    refused: boolean
    why: string
  }[]
  /** nodes of another version, and the columns that they do not have */
  lacking: {
    node: string
    version: string
    columns: string[]
  }[]
  /** nodes whose clock differs from ours by a second or more */
  clocks: {
    node: string
    clock_offset: number
  }[]
  took: number
}

export interface Cluster {
  schema: "memoir.cluster/3"
  time: Time
  /** of the connection to the NATS server; none: this memoird is in no cluster */
  state: "none" | "connecting" | "connected" | "closed"
  problem?: string | null
  server?: string | null
  /** ID of this node */
  self?: string
  name?: string
  /** public key by which this node signs what it asks for its users */
  key?: string | null
  figures?: Record<string, number>
  members: ClusterMember[]
}

export interface ClusterPrograms {
  schema: "memoir.cluster-programs/1"
  time: Time
  measure: string
  programs_total: number
  programs: ClusterProgram[]
  cluster: Gathered
}

export interface ClusterProgram {
  program: string
  /** of the measure, on all nodes that know it */
  value: number
  processes: number
  /** bytes a second, over the last 10 seconds */
  growth: number | null
  nodes_total: number
  outliers: number
  nodes: ({
    node: string
    value: number
    processes: number
    growth: number | null
    /** the least in any third of the last 30 seconds; null: not watched for so long */
    growth_steady: number | null
    /** grows, more or less; null: it is none */
    outlier: string | null
    /** for people */
    why: string | null
  })[]
}

export interface ClusterMember {
  /** name, made unique: for node= and in the column node */
  node: string
  name: string
  id: string
  self: boolean
  state: "alive" | "unreachable" | "left"
  /** for how long */
  state_age: number
  version: string
  started: Time
  /** since its last heartbeat */
  heard_age: number
  /** since its last answer */
  answered_age: number | null
  /** that its last answer took */
  answer_took: number | null
  answers: number
  /** questions without an answer in time */
  unanswered: number
  /** answers that were invalid */
  rejected: number
  /** its clock less ours */
  clock_offset: number
}

/** A column of a table; in other documents, a figure or a time that they have. */
export interface Column {
  name: string
  kind: Kind
  /** of the values; empty where there is none */
  unit: string
}

/** ISO 8601, UTC */
export type Time = string

/** bytes and numbers are integers, rates numbers with a sign, ages seconds, times ISO 8601, percentages numbers, shares fractions from 0 to 1, yes booleans; points are arrays of [seconds since 1970, value], frames arrays of texts, the outermost first */
export type Kind = "text" | "number" | "bytes" | "age" | "time" | "percent" | "share" | "yes" | "rate" | "points" | "frames"

/** with shape=arrays: [row, column] of the cells that carry this mark */
export type Cells = number[][]

export interface Tables {
  tables: ({
    name: string
    help: string
    /** usual columns */
    show: string
    /** usual order */
    sort: string | null
    /** rows of other users are left out */
    private: boolean
    columns: ({
      name: string
      kind: Kind
      help: string
      /** known of your own processes only */
      private: boolean
      unit: string
      cost: "none" | "probe" | "detail"
    })[]
  })[]
}

export interface Process {
  schema: "memoir.process/1"
  time: Time
  pid: number
  /** all columns of the table host; null when it is gone and only its book is left */
  process: Record<string, unknown> | null
  /** what it holds, by device and space */
  accounts: Record<string, unknown>[]
  /** you may see its call sites, blocks and command */
  own: boolean
  tracking: {
    state: "on" | "suspended" | "off" | "none"
    /** who counts: track, attach, client, socket ... */
    source: string | null
    /** why it is not tracked */
    why: string | null
    /** you may switch it */
    can: boolean
    /** switching it on puts probes on its allocator while it runs */
    attach: boolean
    /** where probes are in for part of the time: when the figures changed last */
    as_of?: string | null
    /** what would start it tracked */
    command: string | null
  }
  /** the limit of its cgroup or of one around it that leaves the least */
  limit: {
    bytes: number
    headroom: number
    where: string
  } | null
}

export interface Tracing {
  pid: number
  state: "on" | "off"
}

export interface ScanSum {
  blocks: number
  bytes: number
}

export interface Scan {
  schema: "memoir.scan/2"
  time: Time
  columns: Column[]
  pid: number
  program: string
  /** all of its memory was read: what is called lost is lost */
  proof: boolean
  unread: number
  stood_still: number
  lost: ScanSum
  indirectly_lost: ScanSum
  reachable: ScanSum
  inherited_lost: ScanSum
  /** sites that are not in the list */
  sites_left_out: number
  sites: ({
    state: "lost" | "indirectly lost"
    blocks: number
    bytes: number
    oldest: number
    site: string | null
    via?: string | null
    frame: string | null
    function: string | null
    source_file: string | null
  })[]
}

export interface TrackingWish {
  on: boolean
  /** of a process that is attached: those that it forks, too */
  children?: boolean
}

export interface TracingWish {
  on: boolean
}

export interface Tracking {
  pid: number
  state: "on" | "suspended" | "off" | "none"
  changed: boolean
}

export interface Flame {
  schema: "memoir.flame/1"
  time: Time
  pid: number
  program: string
  /** live figures are those at the peak of each account, not those of now */
  at_peak?: boolean
  /** what the figures of a node are */
  values: string[]
  /** functions, in short */
  names: string[]
  /** the whole name of each; null where it is no longer */
  functions?: (string | null)[]
  /** of each name: path of its file */
  modules: (string | null)[]
  /** of each name: the same at every moment and in every run */
  keys: string[]
  /** [parent, name, figures...]: node 0 is the root, whose parent is -1; parents come first; figures are with all that is below */
  nodes: number[][]
  /** nodes whose figures are estimates */
  estimate: number[]
  /** nodes too small to be told of */
  left_out: number
  books?: number
  books_unread?: number
  sites_full?: number
}

/** Live blocks by age and size. */
export interface Ages {
  schema: "memoir.ages/2"
  time: Time
  columns: Column[]
  pid: number
  program: string
  source: "heap" | "device"
  /** false: more memory than could be searched in time */
  complete: boolean
  searched?: number
  /** where each row begins, in seconds */
  ages: number[]
  /** where each column begins, in bytes */
  sizes: number[]
  blocks: number[][]
  bytes: number[][]
  live_blocks: number
  live: number
}

/** The parts sum to rss. */
export interface Explain {
  schema: "memoir.explain/2"
  time: Time
  columns: Column[]
  program: string | null
  pid: number
  rss: number
  /** not in the sum */
  swap: number
  /** not in the sum */
  hugetlb: number
  mappings: number
  threads: number
  /** false: owners are told by size and alignment of mappings only */
  memory_read: boolean
  /** in use on the heap by the book; null without one */
  live: number | null
  /** of these, not resident: outside the sum */
  live_absent: number | null
  /** bytes by kind */
  kinds: Record<string, number>
  parts: ExplainPart[]
  sites: ExplainSite[] | null
  /** call sites that are not in the list; absent without a book */
  others?: {
    sites: number
    bytes: number
  }
}

export interface ExplainPart {
  kind: "heap" | "slack" | "older" | "runtime" | "anonymous" | "stack" | "file" | "shared" | "device" | "memoir" | "rest"
  name: string
  bytes: number
  private: number
  huge: number
  swap: number
  mappings: number
  /** names that are summed up here; 0: it is one */
  folded: number
  estimated: boolean
  by_shape: boolean
}

export interface ExplainSite {
  site: string
  via?: string | null
  /** resident, an estimate */
  bytes: number
  live: number
  blocks: number
}

export interface Flow {
  copies: number
  bytes: number
}

/** copies by direction */
export interface Flows {
  unknown: Flow
  to_device: Flow
  from_device: Flow
  on_device: Flow
  on_host: Flow
}

export interface Traced {
  schema: "memoir.traced/2"
  time: Time
  columns: Column[]
  state: "off" | "waiting" | "starting" | "running" | "failed"
  /** why nothing is traced; empty while it is */
  problem: string
  processes: TracedProcess[]
}

export interface TracedProcess {
  pid: number
  uid: number
  program: string
  /** its tracing is switched off: no figure of it is kept */
  off: boolean
  /** calls of the driver that were seen */
  calls: number
  blocks: number
  /** exact, by space: dram, managed, pinned, registered */
  spaces: Record<string, {
    bytes: number
    blocks: number
    allocated: number
    allocated_blocks: number
  }>
  copies: Flows
  lost: Record<string, number>
}

/** What libmemoir-cuda pinned in a process, and why. Allocations and sites are those whose copies took most time; 200 of each at most. */
export interface Pinning {
  schema: "memoir.pinning/3"
  time: Time
  columns: Column[]
  pid: number
  mode: "auto" | "use" | "profile" | "shadow" | "off"
  /** registered by the library */
  registered: number
  registered_peak: number
  /** pinned by the program itself */
  own_pinned: number
  /** of allocations that the library serves */
  live: number
  /** of the whole machine, by the kernel's counters; null: it has none */
  kernel_pinned: number | null
  /** null: unlimited */
  budget: number | null
  saved: number
  missed: number
  cost: number
  /** copies of memory that is not pinned, through the staging ring */
  staged_copies: number
  staged: number
  /** what these took less than the driver's own */
  staged_saved: number
  /** fresh memory that was touched ahead of the program */
  touched_ahead: number
  failures: number
  not_shown_blocks: number
  calibrated: boolean
  allocations: {
    address: string
    is_pinned: boolean
    bytes: number
    copies: number
    missed: number
    saved: number
    cost: number
    reason: string
    why: string
    site: string
  }[]
  sites: ({
    site: string
    key: string
    allocations: number
    /** pin: each allocation is worth its memory; reuse: all together are worth that of one; leave: neither */
    advice: "pin" | "reuse" | "leave"
    /** what pinning saves for one allocation */
    saves_each: number
    /** of the average allocation */
    bytes: number
    copies: number
    missed: number
    saved: number
    registered: number
  })[]
}

/** What a traced process did with CUDA memory. Sites are numbers of the list sites. */
export interface Trace {
  schema: "memoir.trace/2"
  time: Time
  columns: Column[]
  pid: number
  program: string
  traced_since: Time
  by: "bytes" | "count"
  totals: TraceTotals
  losses: Record<string, number>
  /** copied most, live or not */
  hot: TraceBlock[]
  /** live and copied least */
  cold: TraceBlock[]
  /** lines that moved most over the bus */
  copiers: TraceCopier[]
  /** rates behind the estimated savings */
  assumed: {
    pageable_rate: number
    pinned_rate: number
  }
  /** ranges that were copied again and again in one direction */
  repeats: ({
    address: string
    site: number | null
    space: string | null
    copy_site: number | null
    offset: number
    size: number
    direction: "unknown" | "to_device" | "from_device" | "on_device" | "on_host"
    copies: number
    /** that all copies but the first moved */
    bytes: number
  })[]
  never_copied: ({
    site: number | null
    space: string | null
    blocks: number
    bytes: number
    live: number
  })[]
  /** newest first */
  failures: TraceFailure[]
  gaps: ({
    t: string | null
    /** that were lost */
    events: number
  })[]
  timeline: TraceTimeline
  /** who owns the device memory that the driver counts for the process, on all devices; null: the driver tells no figure */
  owners: {
    driver: number
    /** their bytes sum to driver */
    rows: ({
      /** allocated, rounding, CUDA context, unknown ... */
      kind: string
      bytes: number
      library: string | null
      /** the line that allocated it */
      site: string | null
      memory: string | null
      blocks: number | null
      estimated: boolean
    })[]
  } | null
  sites: TraceSite[]
}

export interface TraceTotals {
  events: number
  blocks: number
  bytes: number
  peak: number
  device: number
  device_peak: number
  allocated_blocks: number
  allocated: number
  freed_blocks: number
  freed: number
  copies: Flows
  pageable: Flow
  /** estimate: time that pinned memory would save */
  pageable_saving: number
  repeated: Flow
  failures: number
  /** page faults */
  faults: number
  ended: string | null
}

export interface TraceBlock {
  address: string
  size: number
  /** line that allocated it */
  site: number | null
  space: string | null
  /** line that copies it most */
  copy_site: number | null
  ordinal: number | null
  state: "live" | "found" | "seen" | "recorded" | "freed" | "exit" | "reset" | "unknown"
  start: string | null
  ended: string | null
  first_copy: string | null
  last_copy: string | null
  /** over the bus */
  copies: number
  /** over the bus */
  bytes: number
  to_device: Flow
  from_device: Flow
  pageable: Flow
  repeated: Flow
  /** page faults in it */
  faults: number
  faults_before_copy: number
}

export interface TraceCopier {
  site: number | null
  unknown: Flow
  to_device: Flow
  from_device: Flow
  on_device: Flow
  on_host: Flow
  pageable: Flow
  async: Flow
  repeated: Flow
  /** estimate: time that pinned memory would save */
  saving: number
}

export interface TraceFailure {
  t: string | null
  /** one sentence: who asked, and who held what */
  text: string
  size: number
  /** the driver's error */
  result: number
  out_of_memory: boolean
  times: number
  site: number | null
  space: string | null
  ordinal: number | null
  held: number
  held_blocks: number
  /** of the device */
  capacity: number | null
  /** of it, by all processes */
  used: number | null
  holders: ({
    site: number | null
    space: string | null
    bytes: number
    blocks: number
  })[]
  others: {
    pid: number
    program: string
    bytes: number
  }[]
}

export interface TraceTimeline {
  start: string | null
  step: number
  /** when the trace was taken */
  now: string | null
  /** most device memory in each step */
  device_peak: number[]
  lines: ({
    group: "device" | "host" | "mixed"
    /** all further holders of the group */
    other: boolean
    site: number | null
    space: string | null
    ordinal: number | null
    /** bytes held at the end of each step */
    last: number[]
  })[]
}

export interface TraceSite {
  site: number
  /** the program's own line */
  text: string
  function: string | null
  source_file: string | null
  line: number | null
  module: string | null
  /** innermost first */
  stack: string[]
}

export interface History {
  schema: "memoir.history/2"
  time: Time
  /** seconds since 1970 */
  from: number
  to: number
  /** seconds; a multiple of the steps in which the points are kept */
  step: number
  /** start of each step, a multiple of step */
  t: number[]
  series: ({
    /** rss, pss, heap, device.0.dram, total, used, pressure ... */
    name: string
    kind: Kind
    /** of a process, as start, user, uid and program */
    pid?: number
    start?: Time
    user?: string
    uid?: number
    program?: string
    /** of memoir history --by user and --by program: how many are added up */
    processes?: number
    /** of another machine */
    node?: string
    ordinal?: number
    device_name?: string
    /** its identity, as the table devices has it */
    device_id?: string
    space?: string
    capacity?: number
    /** at the end of each step; null: nothing was recorded in it */
    last: (number | null)[]
    /** the largest in each step */
    max: (number | null)[]
  })[]
  /** of all that is kept */
  oldest?: number | null
  damaged?: number
}

/** A row of the table events. */
export interface Event {
  /** only grows, also when memoird is started again */
  seq: number
  time: Time
  kind: "came" | "went" | "killed" | "oom" | "leak" | "device" | "tracking"
  pid: number | null
  program: string | null
  user: string | null
  uid: number | null
  /** that it held, or had at most */
  bytes: number | null
  message: string
}

/** What an event tick of the stream has. */
export interface Tick {
  time: Time
  generation: number
  /** a row of the table system */
  system: Record<string, unknown> | null
  /** rows of the table devices */
  devices: Record<string, unknown>[]
  /** null: not known yet, growth is measured over 10 seconds */
  growers: {
    pid: number
    program: string
    /** bytes a second */
    growth: number
    rss: number
  }[] | null
  processes: number
  tracked: number
  /** call sites that leak */
  suspects: number
}

export type Figures = Record<string, number | boolean | string | Record<string, unknown>>

export interface Self {
  schema: "memoir.self/2"
  time: Time
  version: string
  pid: number
  uid: number
  started: Time
  /** seconds, as all durations */
  uptime: number
  cpu: {
    user: number
    system: number
  }
  rss: number | null
  peak_rss?: number
  threads: number | null
  descriptors: number
  loop: Figures
  books: Figures
  sockets: Figures
  history: Record<string, unknown> | null
  exits: Figures
  /** how scarce memory is, as it is published for allocators */
  pressure: Record<string, unknown> | null
  leaks: Figures
  /** how the NVIDIA driver's figures are read: version, problem (empty while NVML answers), readings, failures, and the processor time of a reading in nanoseconds */
  driver?: Record<string, unknown> | null
  /** whether CUDA programs are traced, and why not */
  tracing: {
    state: "off" | "waiting" | "starting" | "running" | "failed"
    /** empty where there is none */
    problem: string
  }
  http: Figures
  events: Figures
}

export interface Session {
  user: string | null
  /** of the token, or of the user */
  name: string
  uid: number | null
  role: "none" | "read" | "control"
  by: "nobody" | "peer" | "token" | "session"
  /** call sites and commands of all users */
  sees_all: boolean
  node: string
  version: string
  tracking_possible: boolean
}

export interface Routes {
  /** Any question about any table */
  'GET /api/v1/query': {
    args: {
      table?: string
      by?: string
      where?: string
      show?: string
      sort?: string
      limit?: number
      shape?: "objects" | "arrays"
      scope?: "node" | "cluster"
      node?: string
      at?: string
      since?: string
      until?: string
      points?: number
    }
    answer: Table
  }
  /** Processes that keep a book, with what they hold */
  'GET /api/v1/ps': {
    args: {
      by?: string
      where?: string
      show?: string
      sort?: string
      limit?: number
      shape?: "objects" | "arrays"
      scope?: "node" | "cluster"
      node?: string
      at?: string
      since?: string
      until?: string
      points?: number
    }
    answer: Table
  }
  /** Every process of the machine */
  'GET /api/v1/processes': {
    args: {
      by?: string
      where?: string
      show?: string
      sort?: string
      limit?: number
      shape?: "objects" | "arrays"
      scope?: "node" | "cluster"
      node?: string
      at?: string
      since?: string
      until?: string
      points?: number
    }
    answer: Table
  }
  /** Who holds the machine's memory */
  'GET /api/v1/system': {
    args: {
      by?: string
      where?: string
      show?: string
      sort?: string
      limit?: number
      shape?: "objects" | "arrays"
      scope?: "node" | "cluster"
      node?: string
      at?: string
      since?: string
      until?: string
      points?: number
    }
    answer: Table
  }
  /** Containers: cgroups with what they take and may take */
  'GET /api/v1/cgroups': {
    args: {
      by?: string
      where?: string
      show?: string
      sort?: string
      limit?: number
      shape?: "objects" | "arrays"
      scope?: "node" | "cluster"
      node?: string
      at?: string
      since?: string
      until?: string
      points?: number
    }
    answer: Table
  }
  /** Devices and their kinds of memory */
  'GET /api/v1/devices': {
    args: {
      by?: string
      where?: string
      show?: string
      sort?: string
      limit?: number
      shape?: "objects" | "arrays"
      scope?: "node" | "cluster"
      node?: string
      at?: string
      since?: string
      until?: string
      points?: number
    }
    answer: Table
  }
  /** Processes on devices as the driver counts them */
  'GET /api/v1/device_processes': {
    args: {
      by?: string
      where?: string
      show?: string
      sort?: string
      limit?: number
      shape?: "objects" | "arrays"
      scope?: "node" | "cluster"
      node?: string
      at?: string
      since?: string
      until?: string
      points?: number
    }
    answer: Table
  }
  /** What each process holds, by device and kind of memory */
  'GET /api/v1/accounts': {
    args: {
      by?: string
      where?: string
      show?: string
      sort?: string
      limit?: number
      shape?: "objects" | "arrays"
      scope?: "node" | "cluster"
      node?: string
      at?: string
      since?: string
      until?: string
      points?: number
    }
    answer: Table
  }
  /** Single blocks that are allocated and not freed */
  'GET /api/v1/buffers': {
    args: {
      by?: string
      where?: string
      show?: string
      sort?: string
      limit?: number
      shape?: "objects" | "arrays"
      scope?: "node" | "cluster"
      node?: string
      at?: string
      since?: string
      until?: string
      points?: number
    }
    answer: Table
  }
  /** Call sites of all processes, without names of functions */
  'GET /api/v1/sites': {
    args: {
      by?: string
      where?: string
      show?: string
      sort?: string
      limit?: number
      shape?: "objects" | "arrays"
      scope?: "node" | "cluster"
      node?: string
      at?: string
      since?: string
      until?: string
      points?: number
    }
    answer: Table
  }
  /** Lines of programs that hold memory, without names of functions */
  'GET /api/v1/lines': {
    args: {
      by?: string
      where?: string
      show?: string
      sort?: string
      limit?: number
      shape?: "objects" | "arrays"
      scope?: "node" | "cluster"
      node?: string
      at?: string
      since?: string
      until?: string
      points?: number
    }
    answer: Table
  }
  /** Stacks of calls that lead to memory, without names of functions */
  'GET /api/v1/stacks': {
    args: {
      by?: string
      where?: string
      show?: string
      sort?: string
      limit?: number
      shape?: "objects" | "arrays"
      scope?: "node" | "cluster"
      node?: string
      at?: string
      since?: string
      until?: string
      points?: number
    }
    answer: Table
  }
  /** Call sites that may leak, with the evidence */
  'GET /api/v1/leaks': {
    args: {
      by?: string
      where?: string
      show?: string
      sort?: string
      limit?: number
      shape?: "objects" | "arrays"
      scope?: "node" | "cluster"
      node?: string
      at?: string
      since?: string
      until?: string
      points?: number
    }
    answer: Table
  }
  /** Processes that ended: when, how, and what they still held */
  'GET /api/v1/exited': {
    args: {
      by?: string
      where?: string
      show?: string
      sort?: string
      limit?: number
      shape?: "objects" | "arrays"
      scope?: "node" | "cluster"
      node?: string
      at?: string
      since?: string
      until?: string
      points?: number
    }
    answer: Table
  }
  /** Blocks that processes still held when they ended, the largest of each */
  'GET /api/v1/exited_blocks': {
    args: {
      by?: string
      where?: string
      show?: string
      sort?: string
      limit?: number
      shape?: "objects" | "arrays"
      scope?: "node" | "cluster"
      node?: string
      at?: string
      since?: string
      until?: string
      points?: number
    }
    answer: Table
  }
  /** What happened lately, the latest first */
  'GET /api/v1/events': {
    args: {
      by?: string
      where?: string
      show?: string
      sort?: string
      limit?: number
      shape?: "objects" | "arrays"
      scope?: "node" | "cluster"
      node?: string
      at?: string
      since?: string
      until?: string
      points?: number
    }
    answer: Table
  }
  /** The cluster: its nodes with state, version and last answer */
  'GET /api/v1/cluster': {
    args: Record<string, never>
    answer: Cluster
  }
  /** Programs across the nodes of the cluster, with the nodes that are outliers */
  'GET /api/v1/cluster/programs': {
    args: {
      measure?: "rss" | "pss" | "heap" | "pinned" | "device"
      where?: string
      limit?: number
      nodes?: number
    }
    answer: ClusterPrograms
  }
  /** The tables and their columns */
  'GET /api/v1/tables': {
    args: Record<string, never>
    answer: Tables
  }
  /** All that is known of one process */
  'GET /api/v1/processes/{pid}': {
    args: {
      pid: number
      node?: string
    }
    answer: Process
  }
  /** The lines of a program that hold its memory */
  'GET /api/v1/processes/{pid}/sites': {
    args: {
      pid: number
      by?: string
      where?: string
      show?: string
      sort?: string
      limit?: number
      shape?: "objects" | "arrays"
      at_peak?: "yes" | "no" | "true" | "false" | "1" | "0"
      node?: string
    }
    answer: Table
  }
  /** The stacks that lead to a program's memory, as rows */
  'GET /api/v1/processes/{pid}/stacks': {
    args: {
      pid: number
      by?: string
      where?: string
      show?: string
      sort?: string
      limit?: number
      shape?: "objects" | "arrays"
      at_peak?: "yes" | "no" | "true" | "false" | "1" | "0"
      node?: string
    }
    answer: Table
  }
  /** The stacks that lead to a program's memory, as a tree */
  'GET /api/v1/processes/{pid}/flame': {
    args: {
      pid: number
      at_peak?: "yes" | "no" | "true" | "false" | "1" | "0"
      space?: string
      inverted?: "yes" | "no" | "true" | "false" | "1" | "0"
      node?: string
    }
    answer: Flame
  }
  /** The same for other tools, as a download */
  'GET /api/v1/processes/{pid}/profile': {
    args: {
      pid: number
      format?: "pprof" | "folded" | "speedscope"
      sort?: "live" | "allocated" | "blocks"
      at_peak?: "yes" | "no" | "true" | "false" | "1" | "0"
      space?: string
      node?: string
    }
    answer: unknown
  }
  /** Where the resident memory of a process goes, in parts that sum to its RSS */
  'GET /api/v1/processes/{pid}/explain': {
    args: {
      pid: number
      node?: string
    }
    answer: Explain
  }
  /** Live blocks by age and size */
  'GET /api/v1/processes/{pid}/ages': {
    args: {
      pid: number
      source?: "heap" | "device"
      node?: string
    }
    answer: Ages
  }
  /** Single blocks of one process, with the places in its code by name */
  'GET /api/v1/processes/{pid}/buffers': {
    args: {
      pid: number
      by?: string
      where?: string
      show?: string
      sort?: string
      limit?: number
      shape?: "objects" | "arrays"
      node?: string
    }
    answer: Table
  }
  /** CUDA programs that are traced, with what they hold and copy */
  'GET /api/v1/traced': {
    args: {
      node?: string
    }
    answer: Traced
  }
  /** The CUDA trace of a process: buffers, copies, failures, holders over time */
  'GET /api/v1/processes/{pid}/trace': {
    args: {
      pid: number
      by?: "bytes" | "count"
      k?: number
      node?: string
    }
    answer: Trace
  }
  /** The same as a download for memoir trace load */
  'GET /api/v1/processes/{pid}/trace/dump': {
    args: {
      pid: number
      node?: string
    }
    answer: unknown
  }
  /** Why host memory of a process is pinned for CUDA or not */
  'GET /api/v1/processes/{pid}/pinning': {
    args: {
      pid: number
      node?: string
    }
    answer: Pinning
  }
  /** Switch the tracking of a process on or off */
  'POST /api/v1/processes/{pid}/tracking': {
    args: {
      pid: number
      node?: string
    }
    answer: Tracking
  }
  /** Begin or stop to record what a process calls of CUDA */
  'POST /api/v1/processes/{pid}/tracing': {
    args: {
      pid: number
      node?: string
    }
    answer: Tracing
  }
  /** Look for heap blocks that a process can no longer reach */
  'POST /api/v1/processes/{pid}/scan': {
    args: {
      pid: number
      node?: string
    }
    answer: Scan
  }
  /** What was held, over time */
  'GET /api/v1/history': {
    args: {
      what: "process" | "system" | "device" | "space"
      pid?: number
      start?: number
      device?: string
      at?: string
      from?: string
      to?: string
      points?: number
      node?: string
    }
    answer: History
  }
  /** What memoird itself takes, does and loses */
  'GET /api/v1/self': {
    args: Record<string, never>
    answer: Self
  }
  /** Who you are here */
  'GET /api/v1/session': {
    args: Record<string, never>
    answer: Session
  }
  /** Server-sent events: a tick each second, and what happens */
  'GET /api/v1/stream': {
    args: {
      after?: number
    }
    answer: unknown
  }
  /** Log in by the link that `memoir open` makes */
  'GET /login': {
    args: {
      code: string
    }
    answer: unknown
  }
  /** Log in by a code */
  'POST /api/v1/login': {
    args: Record<string, never>
    answer: Login
  }
  /** Log out */
  'POST /api/v1/logout': {
    args: Record<string, never>
    answer: Logout
  }
  /** This description */
  'GET /api/v1/openapi.json': {
    args: Record<string, never>
    answer: unknown
  }
}
