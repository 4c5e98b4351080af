// What memoird answers, as far as the page uses it.
import type { Kind } from '../base/format'

export interface Column {
  name: string
  kind: Kind
}

/** Rows as arrays in the order of the columns: what is not known is null. */
export interface TableAnswer {
  schema: string
  time: string
  table: string
  columns: Column[]
  rows: unknown[][]
  matched: number
  left_out?: number
  incomplete?: boolean
  estimate?: [number, number][]
  at_least?: [number, number][]
}

export interface TableColumn extends Column {
  help: string
  private?: boolean
}

export interface TablesAnswer {
  tables: { name: string; help?: string; columns: TableColumn[] }[]
}

export interface Session {
  user: string | null
  name?: string
  uid: number
  role: 'read' | 'control'
  sees_all: boolean
  node: string
  version: string
  tracking_possible?: boolean
}

export type SystemRow = Record<string, number | string | null>
export type DeviceRow = Record<string, number | string | null>

export interface Grower {
  pid: number
  program: string
  rate: number
  rss: number | null
}

export interface Tick {
  time: string
  generation: number
  system: SystemRow | null
  devices: DeviceRow[]
  growers: Grower[]
  processes: number
  tracked: number
  suspects: number
}

export interface Event {
  id: number
  time: string
  kind: string
  pid?: number | null
  program?: string | null
  text: string
  bytes?: number | null
}

export interface EventsAnswer {
  events: Event[]
}

export interface HistorySeries {
  name: string
  kind: Kind
  last: (number | null)[]
  max?: (number | null)[]
}

export interface HistoryAnswer {
  from: number
  to: number
  step: number
  t: number[]
  series: HistorySeries[]
}

export interface Site {
  function?: string | null
  file?: string | null
  line?: number | null
}

export interface Suspect {
  pid: number
  program: string
  level: string
  confidence: string | number | null
  score: number | null
  rate: number | null
  live_bytes: number | null
  live_blocks: number | null
  site: Site | null
  stack: string[]
  since: string | null
  limit: { in_s: number; bytes: number; what: string } | null
  why: string[]
  series: { t: number[]; bytes: (number | null)[]; blocks: (number | null)[] } | null
  samples: { address: string; bytes: number; age: number }[]
}

export interface SuspectsAnswer {
  suspects: Suspect[]
  watched: number
  ready: boolean
  looks: number
}

/** memoird's own figures: groups of named figures, as it tells them. */
export type SelfAnswer = Record<string, unknown>
