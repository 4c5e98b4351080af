// Columns of the query core's tables as columns on the screen: one place for their titles, widths and looks, so that a
// figure looks the same on every screen.
import type { TableAnswer } from '../api/types'
import { ABSENT, bytes, cell, rate, wholeDuration, type Kind, type Mark } from '../base/format'
import type { TableColumn } from '../kit/table'

export type QueryRow = readonly unknown[]

/** An answer with its rows ready to look things up in. */
export interface QueryRows {
  rows: QueryRow[]
  index: Map<string, number>
  kinds: Map<string, Kind>
  marks: Map<QueryRow, Map<number, Mark>>
  matched: number
}

const NOTHING: QueryRows = { rows: [], index: new Map(), kinds: new Map(), marks: new Map(), matched: 0 }

export function readRows(answer: TableAnswer | null): QueryRows {
  if (!answer) return NOTHING
  const marks = new Map<QueryRow, Map<number, Mark>>()
  const note = (list: TableAnswer['estimate'], mark: Mark): void => {
    for (const [r, c] of list ?? []) {
      const row = r == null ? undefined : answer.rows[r]
      if (!row || c == null) continue
      const cells = marks.get(row) ?? new Map<number, Mark>()
      cells.set(c, { ...cells.get(c), ...mark })
      marks.set(row, cells)
    }
  }
  note(answer.estimate, { estimate: true })
  note(answer.at_least, { atLeast: true })
  return {
    rows: answer.rows,
    index: new Map(answer.columns.map((c, i) => [c.name, i])),
    kinds: new Map(answer.columns.map((c) => [c.name, c.kind])),
    marks,
    matched: answer.matched,
  }
}

interface Look {
  title?: string
  width?: number
  grow?: boolean
}

const LOOKS: Record<string, Look> = {
  program: { title: 'Program', width: 160, grow: true },
  pid: { title: 'PID', width: 70 },
  parent: { title: 'Parent', width: 74 },
  uid: { title: 'UID', width: 74 },
  user: { title: 'User', width: 92 },
  rss: { title: 'RSS', width: 86 },
  pss: { title: 'PSS', width: 130 },
  uss: { title: 'USS', width: 88 },
  vms: { title: 'VMS', width: 88 },
  oom_score: { title: 'OOM score', width: 92 },
  oom_kills: { title: 'OOM kills', width: 86 },
  tracked: { title: 'Tracked', width: 130 },
  cgroup: { title: 'Cgroup', width: 220 },
  container: { title: 'Container', width: 130 },
  command: { title: 'Command', width: 360 },
  exe: { title: 'Program file', width: 220 },
  cause: { title: 'How it ended', width: 160, grow: true },
  count: { title: 'Processes', width: 92 },
  peak_rss: { title: 'Peak RSS', width: 92 },
  pss_age: { title: 'Age of PSS', width: 96 },
  cpu: { title: 'CPU time', width: 84 },
}

const WIDTHS: Record<Kind, number> = { text: 130, number: 84, bytes: 86, age: 84, time: 160, percent: 78, share: 78, yes: 64, rate: 96, points: 120, frames: 200 }

/** Numbers that name something rather than count it. */
const NAMES = new Set(['pid', 'parent', 'uid', 'ordinal', 'rank', 'signal', 'exit_code', 'oom_score', 'order', 'depth'])

export const titleOf = (name: string): string => {
  const words = (LOOKS[name]?.title ?? name).replace(/[._]/g, ' ').replace(/ (dram|l1|cb)\b/, (s) => s.toUpperCase())
  return words[0]!.toUpperCase() + words.slice(1)
}

export function columnOf(data: QueryRows, name: string, help?: string): TableColumn<QueryRow> {
  const kind = data.kinds.get(name) ?? 'text'
  const at = data.index.get(name) ?? -1
  const look = LOOKS[name] ?? {}
  const column: TableColumn<QueryRow> = {
    id: name,
    title: titleOf(name),
    help,
    kind,
    width: Math.max(look.width ?? WIDTHS[kind], titleOf(name).length * 8 + 30),
    grow: look.grow ?? false,
    value: (row) => row[at],
    text: NAMES.has(name)
      ? (row) => (row[at] == null ? ABSENT : String(row[at]))
      : (row) => cell(row[at], kind, data.marks.get(row)?.get(at)),
  }
  const render = RENDERS[name]?.(data, column)
  return render ? { ...column, ...render } : column
}

type Render = (data: QueryRows, column: TableColumn<QueryRow>) => Partial<TableColumn<QueryRow>> | null

const RENDERS: Record<string, Render> = {
  // PSS is costly to read, so it may be minutes old: the figure and how old it is.
  pss: (data, column) => {
    const age = data.index.get('pss_age')
    if (age == null) return null
    return {
      render: (row) => {
        const old = row[age]
        return (
          <>
            {column.text!(row)}
            <span class="age">{typeof old === 'number' && row[data.index.get('pss')!] != null ? wholeDuration(old) : ''}</span>
          </>
        )
      },
    }
  },
  tracked: (_data, column) => ({
    render: (row) => {
      const text = column.text!(row)
      return text === 'yes' ? <span class="badge good">yes</span> : <span class="muted">{text.replace(/^no: /, '')}</span>
    },
  }),
}

/** The growth of RSS, painted by its sign. */
export function rateColumn(data: QueryRows): TableColumn<QueryRow> | null {
  const up = data.index.get('growth')
  if (up == null) return null
  const value = (row: QueryRow): number | null => {
    const grew = row[up]
    return typeof grew === 'number' ? grew : null
  }
  return {
    id: 'rate',
    title: 'Rate',
    help: 'by how much RSS grew or shrank, per second, over the last 10 seconds',
    kind: 'bytes',
    width: 104,
    value,
    render: (row) => {
      const n = value(row)
      if (n == null) return <span class="none">{ABSENT}</span>
      return n === 0 ? <span class="none">0</span> : <span class={n > 0 ? 'up' : 'down'}>{rate(n)}</span>
    },
  }
}

/** A figure with a bar of its share of the largest: the eye finds what is large. */
export function barColumn(data: QueryRows, name: string, help?: string): TableColumn<QueryRow> {
  const column = columnOf(data, name, help)
  const at = data.index.get(name) ?? -1
  let largest = 0
  for (const row of data.rows) if (typeof row[at] === 'number' && (row[at] as number) > largest) largest = row[at] as number
  return {
    ...column,
    width: 138,
    render: (row) => {
      const value = row[at]
      const share = typeof value === 'number' && largest > 0 ? value / largest : 0
      return (
        <span class="bar-cell">
          <span class="meter plain">
            <i style={{ width: `${share * 100}%` }} />
          </span>
          <span>{column.text ? column.text(row) : bytes(value as number)}</span>
        </span>
      )
    },
  }
}
