// What memoird answers, by the names that the page uses. The types themselves are made from the description of the API
// (schema.ts), so a change over there is an error here.
import type * as api from './schema'

export type { Event, Session, Suspect, Tick } from './schema'
export type EventsAnswer = api.Events
export type HistoryAnswer = api.History
export type HistorySeries = api.History['series'][number]
export type SuspectsAnswer = api.Suspects
export type TablesAnswer = api.Tables
export type TableColumn = api.Tables['tables'][number]['columns'][number]
export type Column = api.Table['columns'][number]
export type Grower = NonNullable<api.Tick['growers']>[number]
export type Site = api.Suspect['site']
export type SelfAnswer = api.Self
/** A row of the tables system and devices. */
export type SystemRow = Record<string, unknown>
export type DeviceRow = Record<string, unknown>

/** With shape=arrays: rows in the order of the columns. */
export interface TableAnswer extends Omit<api.Table, 'rows'> {
  rows: unknown[][]
}
