// The heap of one process by call stacks: an icicle with zoom, search and the comparison of two moments, or the same as a table.
import type { JSX } from 'preact'
import { useEffect, useMemo, useState } from 'preact/hooks'
import { address } from '../api/client'
import { useResource } from '../api/resource'
import { clock, count, percent } from '../base/format'
import { setWords, word } from '../base/route'
import { amount, Icicle, signed } from '../draw/icicle_view'
import {
  frameMark,
  treeDiff,
  treeFind,
  treeOf,
  treePath,
  treeRows,
  treeSearch,
  type FlameAnswer,
  type Frame,
} from '../draw/tree'
import { Card, Choice, Empty, ProblemBox, StaleNotice, Waiting } from '../kit/parts'
import { Table, type TableColumn } from '../kit/table'
import { addMoment, momentName, type Moment } from './heap_moments'
import type { TrackingState } from './process_tracking'
import { isTracked, Untracked } from './untracked'

const VALUES = [
  ['live_bytes', 'Held bytes'],
  ['live_blocks', 'Held blocks'],
  ['alloc_bytes', 'Allocated bytes'],
  ['alloc_blocks', 'Allocations'],
  ['peak_bytes', 'Held at the peak'],
] as const
type Value = (typeof VALUES)[number][0]
/** What the answer calls them; at the peak it has held bytes of then. */
const COLUMNS: Record<Value, string> = {
  live_bytes: 'bytes',
  live_blocks: 'blocks',
  alloc_bytes: 'allocated',
  alloc_blocks: 'allocated_blocks',
  peak_bytes: 'bytes',
}

const ROWS_MAX = 2000

export function Heap({ pid, tracking }: { pid: number; tracking: TrackingState }): JSX.Element {
  const value: Value = VALUES.find(([id]) => id === word('value'))?.[0] ?? 'live_bytes'
  const peak = value === 'peak_bytes'
  const question = peak ? { at_peak: 'yes' as const } : {}
  const { data, problem } = useResource<FlameAnswer>(`/processes/${pid}/flame`, question, { every: 2000 })
  const [moments, setMoments] = useState<Moment[]>([])
  const [held, setHeld] = useState<FlameAnswer | null>(null)
  useEffect(() => {
    if (data && !data.at_peak) setMoments((before) => addMoment(before, data, Date.now()))
  }, [data])
  const now = held ?? data
  const unit = value.endsWith('bytes') ? 'bytes' : 'blocks'
  const against = moments.find((moment) => String(moment.time) === word('against')) ?? null
  const root = useMemo(() => (now ? makeTree(now, against?.answer ?? null, COLUMNS[value]) : null), [now, against, value])

  if (!data) {
    if (problem && !isTracked(tracking)) return <Untracked tracking={tracking} what="The heap by call stacks" />
    return problem ? <ProblemBox problem={problem} /> : <Waiting rows={8} />
  }
  if (!root || (root.total === 0 && !root.before))
    return (
      <Empty title="It holds nothing">
        <span>This process has no allocation that is accounted and not freed.</span>
      </Empty>
    )
  const zoom = treeFind(root, word('zoom')) ?? root
  const zoomTo = (to: Frame): void => setWords({ zoom: to === root ? null : frameMark(to) })
  const search = word('search')
  const table = word('as') === 'table'
  return (
    <>
      <div class="tab-tools">
        <Choice
          label="what is shown"
          options={VALUES}
          value={value}
          onChange={(id) => setWords({ value: id === 'live_bytes' ? null : id })}
        />
        <Choice
          label="form"
          options={[
            ['icicle', 'Icicle'],
            ['table', 'Table'],
          ]}
          value={table ? 'table' : 'icicle'}
          onChange={(form) => setWords({ as: form === 'table' ? form : null })}
        />
        <input
          class="field"
          type="search"
          data-filter
          aria-label="search for a function"
          placeholder="Search a function"
          value={search}
          onInput={(event) => setWords({ search: event.currentTarget.value || null })}
        />
        <Moments
          moments={moments}
          against={against}
          held={held !== null}
          onKeep={() => setMoments(addMoment(moments, now!, Date.now(), true))}
          onHold={() => setHeld(held ? null : data)}
        />
        <Downloads pid={pid} />
      </div>
      <StaleNotice problem={problem} />
      <Card
        title={<Trail zoom={zoom} onZoom={zoomTo} />}
        end={<Found root={root} search={search} unit={unit} against={against} estimate={!!now?.estimate?.length} />}
      >
        {table ? (
          <FrameTable root={root} zoom={zoom} unit={unit} search={search} onZoom={zoomTo} />
        ) : (
          <Icicle
            root={root}
            zoom={zoom}
            search={search}
            unit={unit}
            onZoom={zoomTo}
            label={`Heap by call stacks, ${amount(root.total, unit)} in all`}
          />
        )}
      </Card>
    </>
  )
}

function makeTree(now: FlameAnswer, old: FlameAnswer | null, value: string): Frame | null {
  const tree = treeOf(now, Math.max(0, now.values.indexOf(value)))
  const before = old && treeOf(old, Math.max(0, old.values.indexOf(value)))
  return tree && before ? treeDiff(before, tree) : tree
}

interface MomentsProps {
  moments: Moment[]
  against: Moment | null
  held: boolean
  onKeep: () => void
  onHold: () => void
}

function Moments({ moments, against, held, onKeep, onHold }: MomentsProps): JSX.Element {
  return (
    <>
      <label class="row">
        <span class="muted">compared with</span>
        <select
          class="field"
          value={against ? String(against.time) : ''}
          onChange={(event) => setWords({ against: event.currentTarget.value || null })}
        >
          <option value="">nothing</option>
          {moments.map((moment, i) => (
            <option key={moment.time} value={String(moment.time)}>
              {momentName(moment, i === 0, clock(moment.time / 1000))}
            </option>
          ))}
        </select>
      </label>
      <button
        type="button"
        class="button"
        onClick={onKeep}
        data-tip="Remember the heap as it is now, to compare with it later"
      >
        Keep this moment
      </button>
      <button
        type="button"
        class="button"
        aria-pressed={held}
        onClick={onHold}
        data-tip={held ? 'Follow the process again' : 'Stop the picture; the process goes on'}
      >
        {held ? 'Go on' : 'Hold'}
      </button>
    </>
  )
}

function Downloads({ pid }: { pid: number }): JSX.Element {
  const formats = [
    ['pprof', 'pprof'],
    ['speedscope', 'speedscope'],
    ['folded', 'folded stacks'],
  ] as const
  return (
    <span class="row end">
      <span class="muted">save as</span>
      {formats.map(([format, title]) => (
        <a key={format} href={address(`/processes/${pid}/profile`, { format })} download>
          {title}
        </a>
      ))}
    </span>
  )
}

/** Where one is in the tree; each step leads back to it. */
function Trail({ zoom, onZoom }: { zoom: Frame; onZoom: (to: Frame) => void }): JSX.Element {
  const path = treePath(zoom)
  const shown = path.length > 5 ? [path[0]!, ...path.slice(-4)] : path
  return (
    <span class="trail">
      {shown.map((step, i) => (
        <span key={i}>
          {i > 0 && <span class="faint">{i === 1 && path.length > 5 ? ' … ' : ' › '}</span>}
          {step === zoom ? (
            <b>{step.name}</b>
          ) : (
            <button type="button" class="plain-link" onClick={() => onZoom(step)}>
              {step.name}
            </button>
          )}
        </span>
      ))}
    </span>
  )
}

function Found({
  root,
  search,
  unit,
  against,
  estimate,
}: {
  root: Frame
  search: string
  unit: 'bytes' | 'blocks'
  against: Moment | null
  estimate: boolean
}): JSX.Element {
  const found = useMemo(() => (search ? treeSearch(root, search) : null), [root, search])
  if (found)
    return (
      <span class="muted" role="status">
        {count(found.match.size)} found, {amount(found.total, unit)}, {percent((100 * found.total) / (root.total || 1))}
      </span>
    )
  if (against)
    return (
      <span class="muted row">
        {amount(root.total, unit)}, {signed(root.total - (root.before ?? 0), unit)}
        <span class="swatch grown" /> grew
        <span class="swatch shrunk" /> shrank
      </span>
    )
  return (
    <span class="muted">
      {amount(root.total, unit)} in all{estimate ? ', partly estimated from samples' : ''}
    </span>
  )
}

function FrameTable({
  root,
  zoom,
  unit,
  search,
  onZoom,
}: {
  root: Frame
  zoom: Frame
  unit: 'bytes' | 'blocks'
  search: string
  onZoom: (to: Frame) => void
}): JSX.Element {
  const rows = useMemo(() => {
    const found = search ? treeSearch(root, search) : null
    return treeRows(zoom, Infinity)
      .filter((frame) => !found || found.match.has(frame))
      .slice(0, ROWS_MAX)
  }, [root, zoom, search])
  const kind = unit === 'bytes' ? 'bytes' : 'number'
  const columns: TableColumn<Frame>[] = [
    { id: 'name', title: 'Function', kind: 'text', width: 240, grow: true, pin: true, value: (f) => f.name },
    { id: 'total', title: 'With callees', kind, width: 110, value: (f) => f.total },
    { id: 'self', title: 'Itself', kind, width: 100, value: (f) => f.self },
    { id: 'share', title: 'Share', kind: 'percent', width: 80, value: (f) => (100 * f.total) / (root.total || 1) },
    {
      id: 'callers',
      title: 'Called by',
      kind: 'text',
      width: 280,
      grow: true,
      value: (f) =>
        f.up
          ? treePath(f.up)
              .slice(-4)
              .map((up) => up.name)
              .join(' › ')
          : '',
    },
  ]
  if (root.before !== null)
    columns.splice(2, 0, {
      id: 'change',
      title: 'Change',
      kind,
      width: 110,
      value: (f) => f.total - (f.before ?? 0),
      text: (f) => signed(f.total - (f.before ?? 0), unit),
    })
  return (
    <Table
      label="frames of the heap"
      columns={columns}
      rows={rows}
      rowKey={(f) => frameMark(f)}
      onOpen={onZoom}
      height={560}
      bare
    />
  )
}
