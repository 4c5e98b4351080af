// A suspect of the detector, closed as one line and opened with all its evidence: what was measured, the line of its rate, the
// sentences of the verdict, the stack, and blocks to look for.
import type { JSX } from 'preact'
import type { Suspect } from '../api/types'
import { bytes, clock, duration, perMinute } from '../base/format'
import { link } from '../base/route'
import { isStart } from '../draw/tree'
import { evenly, trendLine } from '../draw/trend'
import { TimeChart } from '../kit/chart'
import { Badge } from '../kit/parts'
import { Spark } from '../kit/spark'
import {
  heldSentence,
  levelOf,
  limitSentence,
  asSentence,
  siteName,
  sitePlace,
  isResident,
  suspectKey,
  sureness,
} from './suspect_model'

/** Where the place is and whose: shown alike in the closed and the opened form. */
function Place({ suspect, process }: { suspect: Suspect; process: boolean }): JSX.Element {
  const place = sitePlace(suspect.site)
  return (
    <span class="suspect-place clip">
      <b data-tip={suspect.site?.function ?? undefined}>{siteName(suspect.site)}</b>
      {place && <span class="muted mono"> {place}</span>}
      {suspect.site?.via && !suspect.places && <span class="muted"> via {suspect.site.via}</span>}
      {suspect.places && <span class="muted"> in {suspect.places} ways</span>}
      {process && (
        <span class="muted">
          {' in '}
          {suspect.program} ({suspect.pid})
        </span>
      )}
    </span>
  )
}

interface SuspectProps {
  suspect: Suspect
  open: boolean
  /** Null: it stays as it is. */
  onToggle: (() => void) | null
  /** Say which process it is. */
  process: boolean
}

export function SuspectItem({ suspect, open, onToggle, process }: SuspectProps): JSX.Element {
  const level = levelOf(suspect.level)
  const id = `suspect-${suspectKey(suspect)}`
  const head = (
    <>
      <Badge tone={level.tone}>{level.title}</Badge>
      <span class="suspect-sure muted">{sureness(suspect)}</span>
      <Place suspect={suspect} process={process} />
      <span class="suspect-spark">
        {suspect.series && !open && (
          <Spark
            label="held over time"
            values={evenly(suspect.series.t, suspect.series.bytes)}
            min={0}
            tone={level.tone === 'bad' ? 'bad' : ''}
          />
        )}
      </span>
      <span class="num suspect-rate">{suspect.rate ? perMinute(suspect.rate) : ''}</span>
      <span class="num suspect-held">{bytes(suspect.live_bytes)}</span>
      <span class="num suspect-left">
        {suspect.limit?.in_s != null ? `full in ${duration(suspect.limit.in_s)}` : ''}
      </span>
    </>
  )
  return (
    <li class={`suspect tone-${level.tone}`}>
      {onToggle ? (
        <button
          type="button"
          class="suspect-head"
          aria-expanded={open}
          aria-controls={open ? id : undefined}
          onClick={onToggle}
        >
          {head}
        </button>
      ) : (
        <div class="suspect-head">{head}</div>
      )}
      {open && (
        <div class="suspect-body" id={id}>
          <Evidence suspect={suspect} process={process} />
        </div>
      )}
    </li>
  )
}

function Evidence({ suspect, process }: { suspect: Suspect; process: boolean }): JSX.Element {
  const limit = limitSentence(suspect)
  const asked = suspect.stack.filter(isOwn).indexOf(suspect.site?.text ?? '')
  return (
    <div class="grid">
      <div class="span-7">
        <EvidenceChart suspect={suspect} />
        <ul class="why">
          {suspect.why.map((sentence) => (
            <li>{asSentence(sentence)}</li>
          ))}
          <li>{heldSentence(suspect)}</li>
          {limit && <li>{limit}</li>}
        </ul>
      </div>
      <div class="span-5">
        {suspect.stack.length > 0 && (
          <>
            <h3>Stack, from the allocator outwards</h3>
            <ol class="frames">
              {suspect.stack.filter(isOwn).map((line, i) => (
                <li class={i < asked ? 'mono muted' : 'mono'}>{i === asked ? <b>{line}</b> : line}</li>
              ))}
            </ol>
          </>
        )}
        {suspect.samples.length > 0 && <Samples suspect={suspect} />}
        {process && (
          <p class="row wrap">
            <a class="button" href={link(`process/${suspect.pid}`)}>
              Open the process
            </a>
            {!isResident(suspect) && (
              <a
                class="button plain"
                href={link(`process/${suspect.pid}`, { tab: 'heap', search: suspect.site?.function })}
              >
                Show it in the heap
              </a>
            )}
          </p>
        )}
      </div>
    </div>
  )
}

/** A line of a stack is a place and a function. */
const isOwn = (line: string): boolean => !isStart(line.split(' ').pop() ?? '')

function Samples({ suspect }: { suspect: Suspect }): JSX.Element {
  return (
    <table class="plain">
      <caption>Blocks it holds, for instance</caption>
      <thead>
        <tr>
          <th scope="col">address</th>
          <th scope="col" class="num">
            size
          </th>
          <th scope="col" class="num">
            age
          </th>
        </tr>
      </thead>
      <tbody>
        {suspect.samples.map((block) => (
          <tr>
            <td class="mono">{block.address}</td>
            <td class="num">{bytes(block.bytes)}</td>
            <td class="num">{duration(block.age)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  )
}

export function EvidenceChart({ suspect }: { suspect: Suspect }): JSX.Element | null {
  const series = suspect.series
  if (!series || series.t.length < 2) return null
  const first = series.t[0] ?? 0
  const last = series.t[series.t.length - 1] ?? first
  return (
    <TimeChart
      label={`What ${siteName(suspect.site)} holds, from ${clock(first)} to ${clock(last)}`}
      t={series.t}
      series={[
        { id: 'held', name: 'held', values: series.bytes, color: '--series-1', fill: true },
        {
          id: 'rate',
          name: 'rate of the verdict',
          values: trendLine(series.t, series.bytes, suspect.rate ?? 0),
          color: '--series-6',
          dash: true,
        },
      ]}
      height={180}
    />
  )
}
