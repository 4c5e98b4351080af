// Tables of one process: the places in its code that allocate, the blocks that it holds, and these by age and size.
import type { JSX } from 'preact'
import { useMemo } from 'preact/hooks'
import { useResource } from '../api/resource'
import type { TableAnswer } from '../api/types'
import { bytes, count } from '../base/format'
import { setWords, word } from '../base/route'
import { HeatMap } from '../draw/heat_view'
import { isStart } from '../draw/tree'
import { Card, Choice, Empty, ProblemBox, StaleNotice, Waiting } from '../kit/parts'
import { Table, type TableColumn } from '../kit/table'
import { rowsOf, spaceTitle, type Row } from './device_model'
import type { TrackingState } from './process_tracking'
import { siteName } from './suspect_model'
import { BUFFER_SHOW, transposed } from './tables_model'
import { isTracked, Untracked } from './untracked'

/** A row of the table lines. */
export interface SiteRow {
  key?: string | null
  site?: string | null
  via?: string | null
  function?: string | null
  source_file?: string | null
  line?: number | null
  module?: string | null
  space?: string | null
  bytes: number | null
  blocks: number | null
  allocated: number | null
  allocated_blocks: number | null
  age?: number | null
}

/** Does a row have the words of the filter in any of its texts? */
const has = (filter: string, ...texts: (string | null | undefined)[]): boolean =>
  filter === '' || texts.some((text) => text?.toLowerCase().includes(filter.toLowerCase()))

function Filter({ label }: { label: string }): JSX.Element {
  return (
    <input
      class="field"
      type="search"
      data-filter
      aria-label={label}
      placeholder={label}
      value={word('search')}
      onInput={(event) => setWords({ search: event.currentTarget.value || null })}
    />
  )
}

const place = (row: SiteRow): string =>
  row.source_file
    ? `${row.source_file.split('/').pop()}${row.line ? `:${row.line}` : ''}`
    : (row.module?.split('/').pop() ?? '')
const siteKey = (row: SiteRow): string =>
  [row.function, row.source_file, row.line, row.module, row.space, row.site].join('~')
const nameOf = (row: SiteRow): string => siteName({ ...row, file: row.source_file ?? null, text: row.site ?? '[unknown]' })

const SITE_SHOW = 'key,site,via,function,source_file,line,module,space,bytes,blocks,allocated,allocated_blocks,age'

const SITE_COLUMNS: TableColumn<SiteRow>[] = [
  {
    id: 'function',
    title: 'Function',
    kind: 'text',
    width: 200,
    grow: true,
    pin: true,
    value: nameOf,
    render: (r) => (
      <span data-tip={r.function ?? undefined}>
        {nameOf(r)}
        {r.via && <span class="muted"> via {r.via}</span>}
      </span>
    ),
  },
  { id: 'place', title: 'Line', kind: 'text', width: 160, value: place },
  {
    id: 'held',
    title: 'Held',
    kind: 'bytes',
    width: 100,
    help: 'allocated there and not freed',
    value: (r) => r.bytes,
  },
  { id: 'blocks', title: 'Blocks', kind: 'number', width: 90, value: (r) => r.blocks },
  {
    id: 'allocated',
    title: 'Allocated',
    kind: 'bytes',
    width: 110,
    help: 'in all, since the process started',
    value: (r) => r.allocated,
  },
  { id: 'calls', title: 'Calls', kind: 'number', width: 100, value: (r) => r.allocated_blocks },
  {
    id: 'age',
    title: 'Since',
    kind: 'age',
    width: 90,
    help: 'since it asked for the first time',
    value: (r) => r.age,
  },
  { id: 'space', title: 'Memory', kind: 'text', width: 90, value: (r) => r.space },
]

export function Sites({ pid, tracking }: { pid: number; tracking: TrackingState }): JSX.Element {
  const { data, problem } = useResource<TableAnswer>(
    `/processes/${pid}/sites`,
    { show: SITE_SHOW, shape: 'arrays' },
    { every: 2000 },
  )
  const filter = word('search')
  const open = word('site')
  const all = useMemo(() => (data ? (rowsOf(data) as unknown as SiteRow[]) : []), [data])
  const rows = useMemo(
    () => all.filter((row) => has(filter, row.function, row.source_file, row.module, row.site, row.via)),
    [all, filter],
  )
  if (!data) {
    if (problem && !isTracked(tracking)) return <Untracked tracking={tracking} what="The table of call sites" />
    return problem ? <ProblemBox problem={problem} /> : <Waiting rows={8} />
  }
  const chosen = rows.find((row) => siteKey(row) === open)
  return (
    <>
      <div class="tab-tools">
        <Filter label="Filter functions, files" />
        <span class="muted">
          {count(rows.length)} of {count(all.length)} places
        </span>
      </div>
      <StaleNotice problem={problem} />
      <Table
        label="places in the code that allocate"
        columns={SITE_COLUMNS}
        rows={rows}
        rowKey={siteKey}
        sort={word('sort', '-held')}
        onSort={(sort) => setWords({ sort })}
        selected={open || null}
        onSelect={(key) => setWords({ site: key })}
        height={480}
        empty={
          filter ? (
            <span class="muted">No place has “{filter}” in its name.</span>
          ) : (
            <span class="muted">It has not allocated anything yet.</span>
          )
        }
      />
      {chosen && <Stacks pid={pid} site={chosen} />}
    </>
  )
}

const STACKS_SHOWN = 3

/** A row of the table stacks; its lists have an entry for each call, the outermost first. */
interface StackRow {
  bytes: number | null
  blocks: number | null
  estimated: boolean | null
  functions: string[] | null
  places: string[] | null
  modules: string[] | null
  keys: string[] | null
}

/** By which ways the place was reached: the stacks that hold most of it. */
function Stacks({ pid, site }: { pid: number; site: SiteRow }): JSX.Element {
  const { data } = useResource<TableAnswer>(
    `/processes/${pid}/stacks`,
    {
      where: `keys~"${site.key ?? 'none'}"${site.space ? ` and space="${site.space}"` : ''}`,
      show: 'bytes,blocks,estimated,functions,places,modules,keys',
      limit: STACKS_SHOWN,
    },
    { every: 5000 },
  )
  const stacks = data ? (data.rows as unknown as StackRow[]) : []
  return (
    <Card title={`Stacks through ${nameOf(site)}`}>
      {!data ? (
        <Waiting />
      ) : stacks.length === 0 ? (
        <p class="muted">Only the place itself is known. memoir run --stacks all keeps every stack.</p>
      ) : (
        stacks.map((row) => (
          <>
            <h3>
              {row.estimated ? 'about ' : ''}
              {bytes(row.bytes)} in {count(row.blocks)} blocks
            </h3>
            <ol class="frames">
              {framesOf(row, site).map((frame, i, all) => (
                <li class={i < all.findIndex((f) => f.same) ? 'mono muted' : 'mono'}>
                  {frame.same ? <b>{frame.name}</b> : frame.name} <span class="muted">{frame.place}</span>
                </li>
              ))}
            </ol>
          </>
        ))
      )}
    </Card>
  )
}

/** From the innermost on. */
function framesOf(row: StackRow, site: SiteRow): { name: string; place: string; same: boolean }[] {
  return (row.functions ?? [])
    .map((name, i) => ({
      name: name || '?',
      place: row.places?.[i] || (row.modules?.[i]?.split('/').pop() ?? ''),
      same: row.keys?.[i] === site.key && (!site.function || name === site.function),
    }))
    .filter((frame) => !isStart(frame.name))
    .reverse()
}

const BUFFERS_MAX = 5000

export const BUFFER_COLUMNS: TableColumn<Row>[] = [
  {
    id: 'id',
    title: 'Address',
    kind: 'text',
    width: 150,
    pin: true,
    value: (r) => r['id'],
    render: (r) => <span class="mono">{String(r['id'])}</span>,
  },
  { id: 'bytes', title: 'Size', kind: 'bytes', width: 100, value: (r) => r['bytes'] },
  { id: 'age', title: 'Age', kind: 'age', width: 90, value: (r) => r['age'] },
  {
    id: 'space',
    title: 'Memory',
    kind: 'text',
    width: 120,
    value: (r) => r['space'],
    text: (r) => spaceTitle(String(r['space'])),
  },
  { id: 'device', title: 'Device', kind: 'text', width: 180, value: (r) => r['device'] },
  { id: 'tag', title: 'Tag', kind: 'text', width: 130, help: 'what the program was doing', value: (r) => r['tag'] },
  {
    id: 'moves',
    title: 'Moves',
    kind: 'number',
    width: 80,
    help: 'transfers that it was part of',
    value: (r) => r['moves'],
  },
  { id: 'site', title: 'Asked for by', kind: 'text', width: 220, grow: true, value: (r) => r['site'] },
]

export function Buffers({ pid, tracking }: { pid: number; tracking: TrackingState }): JSX.Element {
  const { data, problem } = useResource<TableAnswer>(
    `/processes/${pid}/buffers`,
    { show: BUFFER_SHOW, sort: '-bytes', limit: BUFFERS_MAX, shape: 'arrays' },
    { every: 2000 },
  )
  const filter = word('search')
  const all = useMemo(() => (data ? rowsOf(data) : []), [data])
  const rows = useMemo(
    () =>
      all.filter((row) => has(filter, ...['id', 'space', 'device', 'tag', 'site'].map((name) => row[name] as string))),
    [all, filter],
  )
  if (!data) return problem ? <ProblemBox problem={problem} /> : <Waiting rows={8} />
  return (
    <>
      <div class="tab-tools">
        <Filter label="Filter tags, devices, sites" />
        <span class="muted">
          {count(rows.length)} of {count(data.matched)} blocks
          {data.matched > all.length && `, the ${count(all.length)} largest`}
          {tracking.state !== 'none' && '; of the tracked heap a sample is listed'}
        </span>
      </div>
      <StaleNotice problem={problem} />
      <Table
        label="blocks that it holds"
        columns={BUFFER_COLUMNS}
        rows={rows}
        rowKey={(row) => `${String(row['device_id'] ?? row['device'])}~${String(row['space'])}~${String(row['id'])}`}
        sort={word('sort', '-bytes')}
        onSort={(sort) => setWords({ sort })}
        height={560}
        empty={
          filter ? (
            <span class="muted">No block matches “{filter}”.</span>
          ) : (
            <Empty title="No single blocks to show">
              <span>
                Blocks are listed one by one for device memory and for what programs report. A tracked heap is summed up
                by call site, and by age and size.
              </span>
            </Empty>
          )
        }
      />
    </>
  )
}

export interface AgesAnswer {
  ages: number[]
  sizes: number[]
  blocks: number[][]
  bytes: number[][]
  source?: string
}

export function Ages({ pid, tracking }: { pid: number; tracking: TrackingState }): JSX.Element {
  const { data, problem } = useResource<AgesAnswer>(`/processes/${pid}/ages`, {}, { every: 5000 })
  const unit = word('value') === 'blocks' ? 'blocks' : 'bytes'
  if (!data) {
    if (problem && !isTracked(tracking)) return <Untracked tracking={tracking} what="The map by age and size" />
    return problem ? <ProblemBox problem={problem} /> : <Waiting rows={8} />
  }
  const values = transposed(unit === 'bytes' ? data.bytes : data.blocks, data.sizes.length)
  const nothing = values.flat().every((value) => !value)
  return (
    <>
      <div class="tab-tools">
        <Choice
          label="what the shades show"
          options={[
            ['bytes', 'Bytes'],
            ['blocks', 'Blocks'],
          ]}
          value={unit}
          onChange={(value) => setWords({ value: value === 'bytes' ? null : value })}
        />
        <span class="muted">What leaks gathers at the right: old, and more and more of it.</span>
      </div>
      <StaleNotice problem={problem} />
      {nothing ? (
        <Empty title="It holds no block whose age is known" />
      ) : (
        <Card
          title={data.source === 'device' ? 'Live blocks on devices, by age and size' : 'Live blocks, by age and size'}
        >
          <div class="wide-scroll" tabIndex={0} role="region" aria-label="live blocks by age and size">
            <HeatMap
              ages={data.ages}
              sizes={data.sizes}
              values={values}
              unit={unit}
              label="Live blocks by age (columns) and size (rows)"
            />
          </div>
        </Card>
      )}
    </>
  )
}
