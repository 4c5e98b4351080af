// The CUDA trace of a process: device memory by holder over time, transfers, hot and cold buffers, copies that need not be, and
// who held what when memory ran out.
import type { ComponentChildren, JSX } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import { useResource } from '../api/resource'
import type { Trace, Traced, TraceBlock, TraceCopier, TraceFailure } from '../api/schema'
import { bytes, clock, count, duration } from '../base/format'
import { setWords, word } from '../base/route'
import { TimeChart, type ChartMark } from '../kit/chart'
import { Card, Choice, Empty, Fact, Facts, ProblemBox, StaleNotice, Waiting } from '../kit/parts'
import { Table, type TableColumn } from '../kit/table'
import { PinningPart } from './process_pinning'
import { Recording } from './process_recording'
import {
  blockKey,
  busOf,
  chartOf,
  faultText,
  flowText,
  lineOf,
  secondsOf,
  shareText,
  sitesOf,
  stackOf,
  traceSpace,
  whyNot,
  type Sites,
} from './trace_model'

const ROWS = 50
const OWNERS_SHOWN = 8

export function CudaTrace({ pid }: { pid: number }): JSX.Element {
  const by = word('by') === 'count' ? 'count' : 'bytes'
  const { data, problem } = useResource<Trace>(`/processes/${pid}/trace`, { by, k: ROWS }, { every: 2000 })
  const trace = data ? (
    <TraceView trace={data} stale={<StaleNotice problem={problem} />} by={by} pid={pid} />
  ) : problem ? (
    <NoTrace problem={problem} />
  ) : (
    <Waiting rows={8} />
  )
  return (
    <>
      {trace}
      <PinningPart pid={pid} />
    </>
  )
}

function NoTrace({ problem }: { problem: Parameters<typeof ProblemBox>[0]['problem'] }): JSX.Element {
  const missing = problem.status === 404 || problem.status === 503
  const { data } = useResource<Traced>(missing ? '/traced' : null, {}, { every: 2000 })
  if (!missing) return <ProblemBox problem={problem} />
  const why = whyNot(data)
  return (
    <Empty title={why.title}>
      <span>{why.text}</span>
    </Empty>
  )
}

function TraceView({ trace, stale, by, pid }: { trace: Trace; stale: JSX.Element; by: 'count' | 'bytes'; pid: number }): JSX.Element {
  const sites = useMemo(() => sitesOf(trace), [trace])
  return (
    <>
      {stale}
      {trace.totals.ended != null && (
        <div class="notice" role="status">
          This process has ended; this is what it did until then.
        </div>
      )}
      {trace.totals.ended == null && <Recording pid={pid} />}
      <Failures failures={trace.failures} sites={sites} />
      <div class="grid">
        <Card
          title="Device memory by holder"
          span={8}
          end={<span class="muted">{bytes(trace.totals.device)} now, {bytes(trace.totals.device_peak)} at most</span>}
        >
          <Holders trace={trace} sites={sites} pid={pid} />
        </Card>
        <div class="span-4 trace-side">
          <Transfers trace={trace} />
          <Owners trace={trace} />
        </div>
        <Buffers trace={trace} sites={sites} by={by} />
        <Copiers trace={trace} sites={sites} />
        <Repeats trace={trace} sites={sites} />
        <NeverCopied trace={trace} sites={sites} />
      </div>
    </>
  )
}

/** Time, and what is drawn at it. */
function marksOf(trace: Trace): ChartMark[] {
  return [
    ...trace.failures.flatMap((f) => (f.t == null ? [] : [{ t: secondsOf(f.t)!, name: f.out_of_memory ? 'out of memory' : 'failed', tone: 'bad' as const }])),
    ...trace.gaps.flatMap((g) => (g.t == null ? [] : [{ t: secondsOf(g.t)!, name: `${count(g.events)} events lost`, tone: 'warn' as const }])),
  ]
}

function Holders({ trace, sites, pid }: { trace: Trace; sites: Sites; pid: number }): JSX.Element {
  const [band, setBand] = useState<string | null>(null)
  const chart = useMemo(() => chartOf(trace), [trace])
  const marks = useMemo(() => marksOf(trace), [trace])
  const n = chart.lines.length
  const at = chart.lines.find((line) => line.id === band) ?? chart.lines[n - 1]
  return (
    <>
      <TimeChart
        label="Device memory by the line that holds it"
        t={chart.t}
        stacked
        height={220}
        sync={`trace-${pid}`}
        marks={marks}
        onBand={setBand}
        series={chart.lines.map((line, i) => ({
          id: line.id,
          name: line.name,
          values: line.values,
          color: `--series-${((n - 1 - i) % 8) + 1}`,
          rest: line.rest,
        }))}
        empty="It has not held device memory while it was traced."
      />
      {at && (
        <div class="trace-stack">
          <span class="muted">{band ? 'Under the pointer' : 'Largest'}: </span>
          <strong>{at.name}</strong>
          <Stack lines={stackOf(sites, at.site)} />
        </div>
      )}
      {trace.gaps.length > 0 && (
        <p class="muted">
          {count(trace.losses['gap_events'] ?? 0)} events were lost in {count(trace.gaps.length)}{' '}
          {trace.gaps.length === 1 ? 'gap' : 'gaps'}; sums and live bytes were read anew after each.
        </p>
      )}
    </>
  )
}

function Stack({ lines }: { lines: string[] }): JSX.Element {
  if (!lines.length) return <p class="muted">The stack is not known.</p>
  return (
    <ol class="frames">
      {lines.map((line, i) => (
        <li key={i} class="mono clip">
          {line}
        </li>
      ))}
    </ol>
  )
}

function Transfers({ trace }: { trace: Trace }): JSX.Element {
  const { copies, pageable, repeated, pageable_saving: saving, faults } = trace.totals
  const bus = busOf(copies)
  return (
    <Card title="Transfers">
      <Facts>
        <Fact name="To devices">
          {bytes(copies.to_device.bytes)} <small>{count(copies.to_device.copies)}</small>
        </Fact>
        <Fact name="From devices">
          {bytes(copies.from_device.bytes)} <small>{count(copies.from_device.copies)}</small>
        </Fact>
        <Fact name="On devices" help="on one device, and between devices">
          {bytes(copies.on_device.bytes)} <small>{count(copies.on_device.copies)}</small>
        </Fact>
        {copies.unknown.copies > 0 && <Fact name="Direction unknown">{bytes(copies.unknown.bytes)}</Fact>}
        <Fact name="Pageable" help="share of the bytes over the bus whose host side was neither pinned nor registered">
          {shareText(pageable.bytes, bus.bytes)} <small>{bytes(pageable.bytes)}</small>
        </Fact>
        <Fact
          name="Pinning would save"
          help={`estimate: pageable copies at ${bytes(trace.assumed.pageable_rate)}/s, pinned ones at ${bytes(trace.assumed.pinned_rate)}/s`}
        >
          {pageable.bytes ? `~${duration(saving)}` : '-'}
        </Fact>
        <Fact name="Repeated" help="copies of a range and direction that was copied before">
          {bytes(repeated.bytes)} <small>{count(repeated.copies)}</small>
        </Fact>
        <Fact name="Page faults" help="in host memory that is copied">
          {count(faults)}
        </Fact>
      </Facts>
    </Card>
  )
}

/** The driver's own figure, split: what the trace knows by line, and what else the driver holds for the process. */
function Owners({ trace }: { trace: Trace }): JSX.Element | null {
  const { owners } = trace
  if (!owners) return null
  const rows = [...owners.rows].sort((a, b) => b.bytes - a.bytes)
  return (
    <Card title="Who owns the driver's figure" end={<span class="muted">{bytes(owners.driver)}</span>}>
      <dl class="figures" aria-label="owners of the device memory that the driver counts">
        {rows.slice(0, OWNERS_SHOWN).map((row, i) => (
          <div key={i}>
            <dt class="clip" data-tip={row.site ? `${row.site}, ${row.memory ?? ''} memory` : ''}>
              {row.site ?? row.library ?? row.kind} {row.site && <span class="muted">{row.library}</span>}
            </dt>
            <dd class="num">
              {row.estimated ? '~' : ''}
              {bytes(row.bytes)}
            </dd>
          </div>
        ))}
        {rows.length > OWNERS_SHOWN && (
          <div>
            <dt class="muted">{count(rows.length - OWNERS_SHOWN)} more</dt>
            <dd class="num">{bytes(rows.slice(OWNERS_SHOWN).reduce((sum, row) => sum + row.bytes, 0))}</dd>
          </div>
        )}
      </dl>
    </Card>
  )
}

function Failures({ failures, sites }: { failures: TraceFailure[]; sites: Sites }): JSX.Element | null {
  const out = failures.filter((failure) => failure.out_of_memory)
  if (!out.length) return null
  return (
    <Card title="Out of memory" class="trace-oom">
      {out.slice(0, 3).map((failure) => (
        <div key={failure.t}>
          <p>
            {failure.t != null && <span class="muted">{clock(failure.t)} </span>}
            {failure.text}
            {failure.times > 1 && <span class="muted"> {count(failure.times)} times.</span>}
          </p>
          <ul class="owners" aria-label="who held what">
            {failure.holders.slice(0, 8).map((holder, i) => (
              <li key={i} data-tip={stackOf(sites, holder.site).join('\n')}>
                {lineOf(sites, holder.site)} {bytes(holder.bytes)} <span class="muted">{count(holder.blocks)} blocks</span>
              </li>
            ))}
            {failure.others.map((other) => (
              <li key={other.pid}>
                {other.program} <span class="faint">{other.pid}</span> {bytes(other.bytes)}
              </li>
            ))}
          </ul>
        </div>
      ))}
    </Card>
  )
}

const siteCell = (sites: Sites, site: number | null): JSX.Element => (
  <span class="clip" data-tip={stackOf(sites, site).join('\n')}>
    {lineOf(sites, site)}
  </span>
)

function blockColumns(sites: Sites): TableColumn<TraceBlock>[] {
  return [
    {
      id: 'site',
      title: 'Allocated at',
      kind: 'text',
      width: 190,
      grow: true,
      pin: true,
      value: (b) => lineOf(sites, b.site),
      render: (b) => siteCell(sites, b.site),
    },
    { id: 'copies', title: 'Copies', kind: 'number', width: 80, help: 'over the bus', value: (b) => b.copies },
    { id: 'bytes', title: 'Copied', kind: 'bytes', width: 95, help: 'over the bus', value: (b) => b.bytes },
    { id: 'size', title: 'Size', kind: 'bytes', width: 90, value: (b) => b.size },
    { id: 'space', title: 'Memory', kind: 'text', width: 90, value: (b) => traceSpace(b.space) },
    {
      id: 'copy_site',
      title: 'Copied at',
      kind: 'text',
      width: 190,
      grow: true,
      value: (b) => (b.copy_site == null ? null : lineOf(sites, b.copy_site)),
      render: (b) => (b.copy_site == null ? '-' : siteCell(sites, b.copy_site)),
    },
    {
      id: 'repeated',
      title: 'Repeated',
      kind: 'bytes',
      width: 95,
      help: 'bytes of ranges that were copied in this direction before',
      value: (b) => b.repeated.bytes,
    },
    {
      id: 'faults',
      title: 'Faults',
      kind: 'number',
      width: 80,
      help: 'page faults before the first copy',
      value: (b) => (b.faults ? b.faults_before_copy : null),
    },
    { id: 'state', title: 'State', kind: 'text', width: 90, value: (b) => b.state },
  ]
}

function Buffers({ trace, sites, by }: { trace: Trace; sites: Sites; by: 'count' | 'bytes' }): JSX.Element {
  const cold = word('buffers') === 'cold'
  const rows = cold ? trace.cold : trace.hot
  const columns = useMemo(() => blockColumns(sites), [sites])
  const open = word('block')
  const chosen = rows.find((row) => blockKey(row) === open)
  return (
    <Card
      title={cold ? 'Cold buffers' : 'Hot buffers'}
      end={
        <>
          <Choice
            label="which buffers"
            options={[
              ['hot', 'Hot'],
              ['cold', 'Cold'],
            ]}
            value={cold ? 'cold' : 'hot'}
            onChange={(value) => setWords({ buffers: value === 'hot' ? null : value, block: null })}
          />{' '}
          <Choice
            label="by what"
            options={[
              ['bytes', 'Bytes'],
              ['count', 'Copies'],
            ]}
            value={by}
            onChange={(value) => setWords({ by: value === 'bytes' ? null : value })}
          />
        </>
      }
    >
      <Table
        label={cold ? 'live buffers that were copied least' : 'buffers that were copied most'}
        columns={columns}
        rows={rows}
        rowKey={blockKey}
        selected={open || null}
        onSelect={(key) => setWords({ block: String(key) })}
        height={360}
        bare
        empty={<span class="muted">{cold ? 'It holds no buffers.' : 'Nothing was copied over the bus.'}</span>}
      />
      {chosen && <BlockDetail block={chosen} sites={sites} />}
    </Card>
  )
}

function BlockDetail({ block, sites }: { block: TraceBlock; sites: Sites }): JSX.Element {
  const faults = faultText(block)
  return (
    <div class="trace-block">
      <p>
        <span class="mono">{block.address}</span>, {bytes(block.size)} of {traceSpace(block.space)} memory
        {block.ordinal != null && ` on device ${block.ordinal}`}: {flowText(block.to_device)} to devices, {flowText(block.from_device)} from devices
        {block.pageable.copies > 0 && `, ${flowText(block.pageable)} pageable`}
        {faults && `; ${faults}`}.
      </p>
      <div class="grid">
        <section class="span-6">
          <h3>Allocated by</h3>
          <Stack lines={stackOf(sites, block.site)} />
        </section>
        {block.copy_site != null && (
          <section class="span-6">
            <h3>Copied by</h3>
            <Stack lines={stackOf(sites, block.copy_site)} />
          </section>
        )}
      </div>
    </div>
  )
}

interface WasteProps<R> {
  title: string
  label: string
  span?: 6 | 12
  end?: ComponentChildren
  columns: TableColumn<R>[]
  rows: readonly R[]
  rowKey: (row: R) => string
  empty: string
}

function Waste<R>({ title, label, span = 12, end, columns, rows, rowKey, empty }: WasteProps<R>): JSX.Element {
  return (
    <Card title={title} span={span} end={end}>
      <Table label={label} columns={columns} rows={rows} rowKey={rowKey} height={260} bare empty={<span class="muted">{empty}</span>} />
    </Card>
  )
}

function Copiers({ trace, sites }: { trace: Trace; sites: Sites }): JSX.Element {
  const columns: TableColumn<TraceCopier>[] = [
    { id: 'site', title: 'Line', kind: 'text', width: 200, grow: true, pin: true, value: (c) => lineOf(sites, c.site), render: (c) => siteCell(sites, c.site) },
    { id: 'to', title: 'To devices', kind: 'bytes', width: 100, value: (c) => c.to_device.bytes },
    { id: 'from', title: 'From devices', kind: 'bytes', width: 110, value: (c) => c.from_device.bytes },
    { id: 'copies', title: 'Copies', kind: 'number', width: 80, value: (c) => busOf(c).copies },
    { id: 'pageable', title: 'Pageable', kind: 'bytes', width: 100, help: 'from or to memory that is not pinned', value: (c) => c.pageable.bytes },
    {
      id: 'saving',
      title: 'Pinning saves',
      kind: 'text',
      align: 'right',
      width: 110,
      help: 'estimated time that its copies would take less from pinned memory',
      value: (c) => c.saving,
      text: (c) => (c.pageable.bytes ? `~${duration(c.saving)}` : '-'),
    },
    { id: 'repeated', title: 'Repeated', kind: 'bytes', width: 100, value: (c) => c.repeated.bytes },
  ]
  return (
    <Waste
      title="Lines that copy"
      label="lines that copy over the bus"
      columns={columns}
      rows={trace.copiers}
      rowKey={(c) => String(c.site ?? 0)}
      empty="Nothing was copied over the bus."
    />
  )
}

type Repeat = Trace['repeats'][number]
const WAYS: Record<Repeat['direction'], string> = {
  unknown: '?',
  to_device: 'to device',
  from_device: 'from device',
  on_device: 'on device',
  on_host: 'on host',
}

function Repeats({ trace, sites }: { trace: Trace; sites: Sites }): JSX.Element {
  const columns: TableColumn<Repeat>[] = [
    { id: 'copy_site', title: 'Copied at', kind: 'text', width: 170, grow: true, pin: true, value: (r) => lineOf(sites, r.copy_site), render: (r) => siteCell(sites, r.copy_site) },
    { id: 'size', title: 'Range', kind: 'bytes', width: 80, value: (r) => r.size },
    { id: 'copies', title: 'Copies', kind: 'number', width: 75, value: (r) => r.copies },
    { id: 'direction', title: 'Way', kind: 'text', width: 95, value: (r) => WAYS[r.direction] },
    { id: 'space', title: 'Memory', kind: 'text', width: 80, value: (r) => traceSpace(r.space) },
  ]
  return (
    <Waste
      title="The same range, again and again"
      label="ranges that were copied repeatedly"
      span={6}
      columns={columns}
      rows={trace.repeats}
      rowKey={(r) => `${r.address}~${r.offset}~${r.direction}~${r.copies}`}
      empty="No range was copied twice."
    />
  )
}

type Unused = Trace['never_copied'][number]

function NeverCopied({ trace, sites }: { trace: Trace; sites: Sites }): JSX.Element {
  const columns: TableColumn<Unused>[] = [
    { id: 'site', title: 'Allocated at', kind: 'text', width: 170, grow: true, pin: true, value: (r) => lineOf(sites, r.site), render: (r) => siteCell(sites, r.site) },
    { id: 'bytes', title: 'Bytes', kind: 'bytes', width: 90, value: (r) => r.bytes },
    { id: 'live', title: 'Held now', kind: 'bytes', width: 90, value: (r) => r.live },
    { id: 'blocks', title: 'Blocks', kind: 'number', width: 75, value: (r) => r.blocks },
    { id: 'space', title: 'Memory', kind: 'text', width: 80, value: (r) => traceSpace(r.space) },
  ]
  return (
    <Waste
      title="Never copied, set or prefetched"
      label="allocations that were never copied"
      span={6}
      columns={columns}
      rows={trace.never_copied}
      rowKey={(r) => `${r.site ?? 0}~${r.space ?? ''}`}
      empty="All buffers were copied, set or prefetched."
    />
  )
}
