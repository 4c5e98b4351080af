// What memoird answers, by the names that the page uses. The types themselves are made from the description of the API
// (schema.ts), so a change over there is an error here.
import type * as api from './schema'

export type { Event, Session, Tick } from './schema'
export type HistoryAnswer = api.History
export type HistorySeries = api.History['series'][number]
export type TablesAnswer = api.Tables
export type TableColumn = api.Tables['tables'][number]['columns'][number]
export type Column = api.Table['columns'][number]
export type Grower = NonNullable<api.Tick['growers']>[number]
/** Where in the code, as far as it is known. */
export interface Site {
  text: string | null
  /** What the line calls to get its memory: a library, a wrapper of malloc. */
  via: string | null
  function: string | null
  file: string | null
  line: number | null
  frame: string | null
}
/** A row of the view leaks, put together for the page: views/suspect_model.ts. */
export interface Suspect {
  pid: number
  program: string | null
  device: string | null
  space: string | null
  level: string
  reason: string | null
  confidence: number | null
  rate: number
  live_bytes: number
  live_blocks: number | null
  since: string | null
  /** It has grown for as long as it is watched, perhaps longer. */
  since_watched: boolean
  limit: { in_s: number; bytes: number; what: string } | null
  site: Site
  stack: string[]
  why: string[]
  series: { t: number[]; bytes: number[] }
  samples: { address: string; bytes: number; age: number }[]
  /** Places in the runtime or library through which the line asks, where there are several. */
  places?: number
}
export interface SuspectsAnswer {
  suspects: Suspect[]
  /** Leaks found before that no longer grow, the latest first. */
  stopped: NonNullable<api.Table['watch']>['stopped']
  books: number
  watched: number
  ready: boolean
  looks: number
}
/** Of GET /leaks. */
export type LeaksAnswer = api.Table
export type SelfAnswer = api.Self
/** A row of the tables system and devices. */
export type SystemRow = Record<string, unknown>
export type DeviceRow = Record<string, unknown>

/** With shape=arrays: rows in the order of the columns. */
export interface TableAnswer extends Omit<api.Table, 'rows'> {
  rows: unknown[][]
}
