// One process: what it is, what it holds, and in tabs its history, heap, call sites, blocks, CUDA trace and verdicts.
import type { JSX } from 'preact'
import { useResource } from '../api/resource'
import type { SuspectsAnswer, LeaksAnswer } from '../api/types'
import { bytes, cell, count, rate, wholeDuration } from '../base/format'
import { link, place, word } from '../base/route'
import { useSubject } from '../base/title'
import { later } from '../kit/later'
import { Badge, Empty, Fact, Facts, ProblemBox, StaleNotice, Tabs, ViewHead, Waiting } from '../kit/parts'
import { History } from './process_history'
import { Tracking, type TrackingState } from './process_tracking'
import { SuspectItem } from './suspect'
import { rankSuspects, suspectKey, suspectsOf } from './suspect_model'
import { isTracked, Untracked } from './untracked'

export interface ProcessAnswer {
  process: Record<string, unknown> | null // null: not in the table of processes yet
  accounts: Record<string, unknown>[]
  tracking: TrackingState
  limit?: { bytes: number | null; where: string | null } | null
}

const Ages = later(() => import('./process_tables').then((module) => module.Ages))
const Buffers = later(() => import('./process_tables').then((module) => module.Buffers))
const Sites = later(() => import('./process_tables').then((module) => module.Sites))
const ExplainBar = later(() => import('./process_explain').then((module) => module.ExplainBar))
const Scan = later(() => import('./process_scan').then((module) => module.Scan), 0)
const Heap = later(() => import('./process_heap').then((module) => module.Heap))
const CudaTrace = later(() => import('./process_trace').then((module) => module.CudaTrace))

const TABS = [
  ['history', 'History'],
  ['heap', 'Heap'],
  ['sites', 'Call sites'],
  ['blocks', 'Blocks'],
  ['ages', 'Age and size'],
  ['cuda', 'CUDA'],
  ['leaks', 'Verdict'],
] as const
type Tab = (typeof TABS)[number][0]

const number = (value: unknown): number | null => (typeof value === 'number' ? value : null)
const text = (value: unknown): string => (typeof value === 'string' ? value : '')

export function Process(): JSX.Element {
  const pid = Number(place.value.parts[1])
  const valid = Number.isInteger(pid) && pid > 0
  const { data, problem } = useResource<ProcessAnswer>(valid ? `/processes/${pid}` : null)
  const leaks = useResource<LeaksAnswer>(valid ? '/leaks' : null, { where: `pid=${pid}` }, { every: 2000 })
  const suspects = suspectsOf(leaks.data)
  const asked = word('tab')
  const tab: Tab = TABS.find(([id]) => id === asked)?.[0] ?? 'history'
  useSubject(valid ? `${text(data?.process?.['program']) || 'Process'} ${pid}` : '')

  if (!valid)
    return (
      <Empty title="Which process?" middle>
        <a href={link('processes')}>Choose one from the list of processes</a>
      </Empty>
    )
  if (!data)
    return problem ? (
      <Gone pid={pid} status={problem.status} box={<ProblemBox problem={problem} middle />} />
    ) : (
      <Waiting rows={8} />
    )
  const row = data.process ?? {}
  const verdicts = rankSuspects(suspects?.suspects ?? [])
  const worst = verdicts[0]
  const gone = problem?.status === 404
  const tracking = withCommand(data.tracking, text(row['command']))
  return (
    <>
      <ViewHead
        title={text(row['program']) || `PID ${pid}`}
        sub={
          <>
            PID {pid} · {text(row['user'])} · {text(row['state'])} · {wholeDuration(number(row['age']) ?? 0)} old
          </>
        }
        end={<Tracking pid={pid} program={text(row['program'])} state={tracking} />}
      />
      {gone ? (
        <div class="notice" role="status">
          This process has ended; the figures are the last that were seen.{' '}
          <a href={link('processes', { of: 'exited' })}>How it ended</a>
        </div>
      ) : (
        <StaleNotice problem={problem} />
      )}
      {text(row['command']) && (
        <p class="command mono clip muted" data-tip={text(row['command'])}>
          {text(row['command'])}
        </p>
      )}
      <Figures row={row} limit={data.limit ?? null} />
      {!gone && <ExplainBar pid={pid} />}
      {worst && tab !== 'leaks' && (
        <ol class="verdicts card" aria-label="what grows in this process">
          <SuspectItem
            key={suspectKey(worst)}
            suspect={worst}
            open={false}
            onToggle={() => (location.hash = link(`process/${pid}`, { tab: 'leaks' }))}
            process={false}
          />
        </ol>
      )}
      <Tabs
        label="parts of this process"
        now={tab}
        tabs={TABS.map(([id, title]) => ({
          id,
          title:
            id === 'leaks' && verdicts.length ? (
              <>
                {title} <Badge tone={worst?.level === 'leak' ? 'bad' : 'warn'}>{count(verdicts.length)}</Badge>
              </>
            ) : (
              title
            ),
          href: link(`process/${pid}`, { tab: id === 'history' ? null : id }),
        }))}
      />
      {tab === 'history' && <History pid={pid} start={Math.floor(Date.parse(text(row['start'])) / 1000) || null} />}
      {tab === 'heap' && <Heap pid={pid} tracking={tracking} />}
      {tab === 'sites' && <Sites pid={pid} tracking={tracking} />}
      {tab === 'blocks' && <Buffers pid={pid} tracking={tracking} />}
      {tab === 'ages' && <Ages pid={pid} tracking={tracking} />}
      {tab === 'cuda' && <CudaTrace pid={pid} />}
      {tab === 'leaks' && isTracked(tracking) && !gone && (
        <div class="tab-tools">
          <Scan pid={pid} program={text(row['program'])} />
        </div>
      )}
      {tab === 'leaks' && <Verdicts answer={suspects} tracking={tracking} />}
    </>
  )
}

/** How it would be started under the tracker: with its own command line, where that is known. */
function withCommand(tracking: TrackingState, command: string): TrackingState {
  return command && tracking.command
    ? { ...tracking, command: tracking.command.replace('COMMAND', () => command) }
    : tracking
}

function Gone({ pid, status, box }: { pid: number; status: number; box: JSX.Element }): JSX.Element {
  if (status !== 404) return box
  return (
    <Empty title={`There is no process ${pid}`} middle>
      <span>It has ended, or it never was. Processes that ended are kept with their peak and cause.</span>
      <span class="row wrap">
        <a class="button" href={link('processes')}>
          Running processes
        </a>
        <a class="button plain" href={link('processes', { of: 'exited' })}>
          Those that ended
        </a>
      </span>
    </Empty>
  )
}

interface Figure {
  name: string
  value: number | null
  help: string
  column?: string
}

/** With the marks that tables have: ~ for an estimate, + for what is at least so much. */
function marked(row: Record<string, unknown>, figure: Figure): string {
  const has = (list: unknown): boolean => Array.isArray(list) && list.includes(figure.column)
  return cell(figure.value, 'bytes', { estimate: has(row.estimate), atLeast: has(row.at_least) })
}

function Figures({
  row,
  limit,
}: {
  row: Record<string, unknown>
  limit: { bytes: number | null; where: string | null } | null
}): JSX.Element {
  const get = (column: string): number | null => number(row[column])
  const age = get('pss_age')
  const growth = get('growth') ?? 0
  const figures: Figure[] = [
    { name: 'RSS', value: get('rss'), help: 'resident: memory of the machine that it uses now' },
    {
      name: age == null ? 'PSS' : `PSS, ${wholeDuration(age)} old`,
      value: get('pss'),
      help: 'proportional: what is shared by n processes counts as an n-th',
    },
    { name: 'Anonymous', value: get('anon'), help: 'of the resident memory, its own: heap and stacks' },
    { name: 'Files', value: get('file'), help: 'of the resident memory, mapped files' },
    { name: 'Shared memory', value: get('shmem'), help: 'of the resident memory, shared memory and tmpfs' },
    { name: 'Swap', value: get('swap'), help: 'swapped out' },
    {
      name: 'Heap, accounted',
      value: get('heap'),
      column: 'heap',
      help: 'allocated and not freed, as its tracker counts. ~: an estimate, because probes are in for part of the time. +: blocks that are older than the attach are not counted',
    },
    { name: 'Pinned', value: get('pinned'), help: 'host memory pinned for transfers' },
    { name: 'On devices', value: get('device'), help: 'memory that it holds on all devices' },
    { name: 'Peak', value: get('peak_rss'), help: 'the most that its resident memory has been' },
  ]
  return (
    <div class="card process-facts">
      <Facts>
        {figures
          .filter((figure) => figure.value != null)
          .map((figure) => (
            <Fact name={figure.name} help={figure.help}>
              {marked(row, figure)}
            </Fact>
          ))}
        <Fact name="Grows by" help="of the resident memory, over the last 10 seconds">
          {rate(growth)}
        </Fact>
        {limit?.bytes != null && (
          <Fact name="Limit" help={limit.where ?? 'limit on its memory'}>
            {bytes(limit.bytes)}
          </Fact>
        )}
        <Fact name="Threads">{count(get('threads'))}</Fact>
      </Facts>
    </div>
  )
}

function Verdicts({ answer, tracking }: { answer: SuspectsAnswer | null; tracking: TrackingState }): JSX.Element {
  if (!answer) return <Waiting rows={4} />
  const suspects = rankSuspects(answer.suspects)
  if (suspects.length)
    return (
      <ol class="verdicts card" aria-label="verdicts about this process">
        {suspects.map((suspect, i) => (
          <SuspectItem key={suspectKey(suspect)} suspect={suspect} open={i < 3} onToggle={null} process={false} />
        ))}
      </ol>
    )
  if (answer.watched === 0 && !isTracked(tracking)) return <Untracked tracking={tracking} what="A verdict" />
  if (!answer.ready || answer.watched === 0)
    return (
      <Empty title="No verdict yet">
        <span>
          memoird watches {count(answer.watched)} places in its code; a verdict needs about half a minute. It appears
          here by itself.
        </span>
      </Empty>
    )
  return (
    <Empty title="Nothing grows">
      <span>{count(answer.watched)} places in its code are watched, and none takes memory without giving it back.</span>
    </Empty>
  )
}
