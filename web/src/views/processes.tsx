// All processes of the machine, living or ended, in a table that filters in the query language, sorts, and groups.
// Everything that one can set here is in the address.
import type { JSX } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import { useResource } from '../api/resource'
import type { TableAnswer, TableColumn as Help, TablesAnswer } from '../api/types'
import { bytes, count } from '../base/format'
import { link, place, setWords, withWords, word } from '../base/route'
import { Icon } from '../kit/icon'
import { Choice, Empty, ProblemBox, StaleNotice, ViewHead, Waiting } from '../kit/parts'
import { isNarrow, Table, type TableColumn } from '../kit/table'
import { ColumnChoice } from './column_choice'
import { both, equals, meant } from './filter'
import { FilterField } from './filter_field'
import { barColumn, columnOf, rateColumn, readRows, type QueryRow, type QueryRows } from './query_columns'

/** One kind of rows: where they come from, and what is shown without a choice. */
interface Source {
  path: string
  table: string
  columns: string[]
  /** Needed beside what is shown. */
  also: string[]
  sort: string
  limit: number
}

const LIVE: Source = {
  path: '/processes',
  table: 'host',
  columns: ['program', 'pid', 'user', 'rss', 'pss', 'anon', 'file', 'shmem', 'swap', 'rate', 'heap', 'pinned', 'device', 'tracked', 'job', 'cgroup'],
  also: ['pid', 'program', 'pss_age', 'growth'],
  sort: '-rss',
  limit: 20_000,
}

const EXITED: Source = {
  path: '/exited',
  table: 'exited',
  columns: ['program', 'pid', 'user', 'ended', 'lived', 'cause', 'device', 'heap', 'peak_rss', 'cpu', 'cgroup'],
  also: ['pid', 'program', 'kind', 'ended'],
  sort: '-ended',
  limit: 20_000,
}

const GROUPS = [
  ['', 'no groups'],
  ['user', 'user'],
  ['program', 'program'],
  ['cgroup', 'cgroup'],
  ['container', 'container'],
  ['job', 'job'],
] as const
/** What groups show: figures that add up. */
const GROUP_COLUMNS = ['count', 'rss', 'pss', 'anon', 'file', 'shmem', 'swap', 'rate', 'heap', 'pinned', 'device']
const GROUP_COLUMNS_EXITED = ['count', 'peak_rss', 'cpu', 'heap', 'device']
/** `rate` is the table's `growth`, painted by its sign. */
const real = (names: string[]): string[] => names.map((n) => (n === 'rate' ? 'growth' : n))

export function Processes(): JSX.Element {
  const exited = word('of') === 'exited'
  const source = exited ? EXITED : LIVE
  const by = word('by')
  const where = word('where')
  const usual = isNarrow() ? whoLast(source.columns) : source.columns
  const chosen = word('cols') ? word('cols').split(',') : usual
  const names = by ? [by, ...(exited ? GROUP_COLUMNS_EXITED : GROUP_COLUMNS)] : chosen
  const wanted = by ? names.slice(1) : [...names, ...source.also]
  const tables = useResource<TablesAnswer>('/tables', {}, { every: Infinity })
  const help = tables.data?.tables.find((t) => t.name === source.table)?.columns ?? []
  const asked = meant(where, help)
  const answer = useResource<TableAnswer>(source.path, {
    where: asked,
    by,
    show: [...new Set(real(wanted))].join(','),
    limit: source.limit,
    shape: 'arrays',
  })
  const data = useMemo(() => readRows(answer.data), [answer.data])
  const bad = answer.problem?.part === 'where' ? answer.problem : null
  const sort = word('sort', by ? (exited ? '-peak_rss' : '-rss') : source.sort)
  const [selected, setSelected] = useState<string | number | null>(null)
  const columns = useMemo(() => tableColumns(data, names, help, exited), [data, names.join(), help.length])
  return (
    <>
      <ViewHead
        title="Processes"
        sub={answer.data && !bad ? summary(data, where, by, exited) : ''}
        end={
          <Choice
            label="which processes"
            options={[['', 'Running'], ['exited', 'Ended']]}
            value={exited ? 'exited' : ''}
            onChange={(of) => setWords({ of, sort: null, cols: null, by: null, where: null }, true)}
          />
        }
      />
      <div class="tools">
        <FilterField
          value={where}
          onChange={(text) => setWords({ where: text })}
          columns={help}
          problem={bad}
          placeholder={exited ? 'kind=oom or peak_rss>1GB' : 'a name, or: user=ann and rss>1GB, program ~ train*'}
        />
        <label class="group">
          <span class="muted">Group</span>
          <select class="field" value={by} onChange={(event) => setWords({ by: event.currentTarget.value, sort: null }, true)}>
            {GROUPS.filter(([id]) => !exited || (id !== 'job' && id !== 'container')).map(([id, text]) => (
              <option key={id} value={id}>
                {text}
              </option>
            ))}
          </select>
        </label>
        {!by && <ColumnChoice all={help} shown={chosen} usual={usual} />}
      </div>
      {exited && answer.data?.exits?.['state'] === 'off' && (
        <p class="muted">Only ends of programs that report or are tracked are seen here: memoir doctor tells why.</p>
      )}
      {answer.problem && !bad && answer.data && <StaleNotice problem={answer.problem} />}
      {!answer.data ? (
        answer.problem ? (
          bad ? null : <ProblemBox problem={answer.problem} />
        ) : (
          <Waiting rows={14} />
        )
      ) : (
        <Table
          label={exited ? 'processes that ended' : 'processes'}
          fill
          pageKeys
          columns={columns}
          rows={data.rows}
          rowKey={rowKey(data, by, exited)}
          sort={sort}
          onSort={(text) => setWords({ sort: text })}
          href={(row) => hrefOf(row, data, by, asked, exited)}
          selected={selected}
          onSelect={setSelected}
          empty={bad ? null : <Nothing where={where} exited={exited} />}
        />
      )}
    </>
  )
}

/** Figures right after the name, who it is at the end. */
function whoLast(columns: string[]): string[] {
  const who = ['pid', 'user', 'lived']
  return [...columns.filter((name) => !who.includes(name)), ...who.filter((name) => columns.includes(name))]
}

function tableColumns(data: QueryRows, names: string[], help: Help[], exited: boolean): TableColumn<QueryRow>[] {
  const helpOf = (name: string): string | undefined => help.find((c) => c.name === name)?.help
  const out: TableColumn<QueryRow>[] = []
  for (const name of names) {
    const column =
      name === 'rate'
        ? rateColumn(data)
        : !data.index.has(name)
          ? null
          : !isNarrow() && (name === 'rss' || (exited && name === 'peak_rss'))
            ? barColumn(data, name, helpOf(name))
            : name === 'cause'
              ? causeColumn(data)
              : columnOf(data, name, helpOf(name))
    if (column) out.push(column)
  }
  if (out[0]) out[0] = { ...out[0], pin: true, grow: true, width: Math.max(out[0].width, 150) }
  return out
}

/** How a process ended, loud where somebody else ended it. */
function causeColumn(data: QueryRows): TableColumn<QueryRow> {
  const column = columnOf(data, 'cause', 'how it ended')
  const kind = data.index.get('kind')
  return {
    ...column,
    render: (row) => {
      const what = kind == null ? '' : row[kind]
      const tone = what === 'oom' ? 'bad' : what === 'signal' ? 'warn' : ''
      return <span class={tone}>{column.text!(row)}</span>
    },
  }
}

function rowKey(data: QueryRows, by: string, exited: boolean): (row: QueryRow) => string {
  const at = data.index.get(by || 'pid') ?? 0
  const ended = exited && !by ? data.index.get('ended') : undefined
  return (row) => (ended == null ? String(row[at]) : `${String(row[at])} ${String(row[ended])}`)
}

function hrefOf(row: QueryRow, data: QueryRows, by: string, where: string, exited: boolean): string | null {
  if (!by) return exited ? null : link(`process/${String(row[data.index.get('pid') ?? 0])}`)
  const condition = equals(by, row[data.index.get(by) ?? 0])
  return withWords(place.value, { by: null, sort: null, where: both(where, condition) })
}

function summary(data: QueryRows, where: string, by: string, exited: boolean): string {
  const at = data.index.get('rss')
  const sum = at == null || exited ? null : data.rows.reduce((n, row) => n + (typeof row[at] === 'number' ? (row[at] as number) : 0), 0)
  const what = by ? 'groups' : where ? 'match' : exited ? 'ended' : 'running'
  const cut = data.matched > data.rows.length ? `, the first ${count(data.rows.length)} shown` : ''
  return `${count(data.matched)} ${what}${cut}${sum != null ? ` · ${bytes(sum)} RSS` : ''}`
}

function Nothing({ where, exited }: { where: string; exited: boolean }): JSX.Element {
  if (where)
    return (
      <Empty title="No process matches this filter">
        <span>A figure that is not known compares with nothing; “column=none” finds those.</span>
        <button type="button" class="button" onClick={() => setWords({ where: null })}>
          <Icon name="close" /> Clear the filter
        </button>
      </Empty>
    )
  return exited ? (
    <Empty title="No process has ended yet">
      <span>memoird remembers those that end while it runs: how they ended, how long they lived, what they held at most.</span>
    </Empty>
  ) : (
    <Empty title="No processes can be seen">
      <span>
        memoird may not read /proc. See what it says: <code>memoir doctor</code>
      </span>
    </Empty>
  )
}
