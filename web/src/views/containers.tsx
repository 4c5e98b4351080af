// Cgroups as the tree that they are: containers, pods, services, sessions, each with what it holds, has held and may hold.
import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import { useResource } from '../api/resource'
import type { TableAnswer, TablesAnswer } from '../api/types'
import { bytes, count, percent } from '../base/format'
import { link, setWords, word } from '../base/route'
import { Badge, Empty, Meter, ProblemBox, StaleNotice, ViewHead, Waiting } from '../kit/parts'
import { parseSort } from '../kit/order'
import { Table, type TableColumn } from '../kit/table'
import { FilterField } from './filter_field'
import { columnOf, readRows, type QueryRow, type QueryRows } from './query_columns'
import { flatten, type TreeRow } from './tree'

const FIGURES = ['current', 'peak', 'swap', 'anon', 'file', 'kernel', 'processes', 'oom_kills']
const SHOW = ['path', 'name', 'parent_path', 'container', 'pod', 'job', 'limit', 'high', 'headroom', ...FIGURES]

/** Branches that the viewer closed; kept while he looks at other screens. */
const closed = signal<ReadonlySet<string>>(new Set())

function toggle(path: string): void {
  const next = new Set(closed.value)
  if (!next.delete(path)) next.add(path)
  closed.value = next
}

type Line = TreeRow<QueryRow>

export function Containers(): JSX.Element {
  const where = word('where')
  const sort = word('sort', '-current')
  const tables = useResource<TablesAnswer>('/tables', {}, { every: Infinity })
  const help = tables.data?.tables.find((t) => t.name === 'cgroups')?.columns ?? []
  const answer = useResource<TableAnswer>('/cgroups', { where, show: SHOW.join(','), limit: 20_000, shape: 'arrays' })
  const data = useMemo(() => readRows(answer.data), [answer.data])
  const lines = useMemo(() => treeLines(data, sort), [data, sort, closed.value])
  const columns = useMemo(() => columnsOf(data, (name) => help.find((c) => c.name === name)?.help), [data, help.length])
  const [selected, setSelected] = useState<string | number | null>(null)
  const bad = answer.problem?.part === 'where' ? answer.problem : null
  return (
    <>
      <ViewHead title="Containers" sub={answer.data ? summary(data) : ''} />
      <div class="tools">
        <FilterField
          value={where}
          onChange={(text) => setWords({ where: text })}
          columns={help}
          problem={bad}
          placeholder="limit!=none and percent>80, oom_kills>0, container ~ api"
        />
      </div>
      {answer.problem && !bad && answer.data && <StaleNotice problem={answer.problem} />}
      {!answer.data ? (
        answer.problem ? bad ? null : <ProblemBox problem={answer.problem} /> : <Waiting rows={12} />
      ) : (
        <Table<Line>
          label="cgroups"
          fill
          pageKeys
          sorted
          columns={columns}
          rows={lines}
          rowKey={(line) => line.path}
          sort={sort}
          onSort={(text) => setWords({ sort: text })}
          selected={selected}
          onSelect={setSelected}
          onOpen={(line) => line.branch && toggle(line.path)}
          empty={<Nothing where={where} />}
        />
      )}
    </>
  )
}

function treeLines(data: QueryRows, sort: string): Line[] {
  const at = (name: string): number => data.index.get(name) ?? -1
  const path = at('path')
  const parent = at('parent_path')
  const by = parseSort(sort)
  const key = at(by?.id === 'name' ? 'name' : (by?.id ?? 'current'))
  return flatten(data.rows, {
    path: (row) => String(row[path]),
    parent: (row) => (row[parent] == null ? null : String(row[parent])),
    value: (row) => row[key],
    down: by?.down ?? true,
    closed: closed.value,
  })
}

function columnsOf(data: QueryRows, help: (name: string) => string | undefined): TableColumn<Line>[] {
  const plain = (name: string): TableColumn<Line> => {
    const { render: _, ...column } = columnOf(data, name, help(name))
    return { ...column, value: (line) => column.value(line.row), text: (line) => column.text!(line.row) }
  }
  const kills = plain('oom_kills')
  return [
    nameColumn(data),
    plain('current'),
    limitColumn(data),
    plain('peak'),
    plain('swap'),
    plain('anon'),
    plain('file'),
    plain('kernel'),
    { ...plain('processes'), width: 92 },
    {
      ...kills,
      width: 96,
      render: (line) => (Number(kills.value(line)) > 0 ? <Badge tone="bad">{kills.text!(line)}</Badge> : <span class="none">{kills.text!(line)}</span>),
    },
  ]
}

function nameColumn(data: QueryRows): TableColumn<Line> {
  const at = (name: string): number => data.index.get(name) ?? -1
  const [name, container, pod, job] = [at('name'), at('container'), at('pod'), at('job')]
  const kindOf = (row: QueryRow): string | null =>
    row[job] != null ? `job ${String(row[job])}` : row[container] != null ? 'container' : row[pod] != null ? 'pod' : null
  return {
    id: 'name',
    title: 'Name',
    kind: 'text',
    width: 300,
    grow: true,
    pin: true,
    value: (line) => line.row[name],
    render: (line) => {
      const text = line.path === '/' ? 'all of the machine' : String(line.row[name] ?? line.path)
      const kind = kindOf(line.row)
      return (
        <span class="branch" style={{ paddingLeft: `${line.depth * 16}px` }}>
          {line.branch ? (
            <button
              type="button"
              class="twig"
              aria-expanded={!closed.value.has(line.path)}
              aria-label={`what is in ${text}`}
              onClick={() => toggle(line.path)}
            >
              {closed.value.has(line.path) ? '▸' : '▾'}
            </button>
          ) : (
            <span class="twig" />
          )}
          <a class="clip" href={link('processes', { where: `cgroup ~ "${escape(line.path)}*"` })} data-tip={`${line.path}\nshow its processes`}>
            {text}
          </a>
          {kind && <Badge>{kind}</Badge>}
        </span>
      )
    },
  }
}

/** In a pattern in quotes of the query language. */
const escape = (path: string): string => (path === '/' ? '/' : path).replace(/[\\"]/g, '\\$&')

function limitColumn(data: QueryRows): TableColumn<Line> {
  const at = (name: string): number => data.index.get(name) ?? -1
  const [current, limit, peak] = [at('current'), at('limit'), at('peak')]
  return {
    id: 'limit',
    title: 'Of its limit',
    help: 'current as a share of what it may hold at most; the mark is the peak',
    kind: 'bytes',
    align: 'left',
    width: 216,
    value: (line) => line.row[limit],
    render: ({ row, path }) => {
      const most = row[limit]
      const now = row[current]
      if (typeof most !== 'number') return <span class="none">no limit</span>
      const share = typeof now === 'number' ? now / most : null
      const top = row[peak]
      return (
        <span class="limit-cell">
          <Meter share={share} label={`${path} of its limit`} mark={typeof top === 'number' ? top / most : null} />
          <span class="num">{share == null ? '' : percent(share * 100)}</span>
          <span class="num muted">{bytes(most)}</span>
        </span>
      )
    },
  }
}

function summary(data: QueryRows): string {
  const kills = data.index.get('oom_kills') ?? -1
  const path = data.index.get('path') ?? -1
  const limited = data.index.get('limit') ?? -1
  const n = data.rows.filter((row) => typeof row[limited] === 'number').length
  const root = data.rows.find((row) => row[path] === '/')
  const killed = root ? Number(root[kills] ?? 0) : 0
  return `${count(data.matched)} cgroups · ${count(n)} with a limit${killed > 0 ? ` · ${count(killed)} OOM kills` : ''}`
}

function Nothing({ where }: { where: string }): JSX.Element {
  return where ? (
    <Empty title="No cgroup matches this filter">
      <button type="button" class="button" onClick={() => setWords({ where: null })}>
        Clear the filter
      </button>
    </Empty>
  ) : (
    <Empty title="No cgroups can be seen">
      <span>
        memoird reads them below /sys/fs/cgroup, which is not there or does not account memory. <code>memoir doctor</code> says more.
      </span>
    </Empty>
  )
}
