// Leaks: every place in the code that takes memory and does not give it back, what runs out soonest first.
import type { JSX } from 'preact'
import { useResource } from '../api/resource'
import type { LeaksAnswer, SuspectsAnswer } from '../api/types'
import { bytes, clock, count } from '../base/format'
import { link, setWords, word } from '../base/route'
import { Card, Choice, Empty, ProblemBox, StaleNotice, ViewHead, Waiting } from '../kit/parts'
import { SuspectItem } from './suspect'
import { leakCount, levelOf, rankSuspects, suspectKey, suspectsOf } from './suspect_model'

type Which = 'all' | 'leak'
const WHICH: readonly (readonly [Which, string])[] = [
  ['all', 'All suspects'],
  ['leak', 'Leaks only'],
]

export function Leaks(): JSX.Element {
  const { data: told, problem } = useResource<LeaksAnswer>('/leaks', {}, { every: 2000 })
  const data = suspectsOf(told)
  const which: Which = word('show') === 'leak' ? 'leak' : 'all'
  const open = word('open')
  const all = rankSuspects(data?.suspects ?? [])
  const suspects = all.filter((suspect) => which === 'all' || suspect.level === 'leak')
  const leaks = leakCount(data)
  // The worst one is opened by itself, until somebody opens or closes another.
  const first = suspects[0]
  const shown = open || (first && levelOf(first.level).rank >= 4 ? suspectKey(first) : 'none')
  return (
    <>
      <ViewHead
        title="Leaks"
        sub={
          data
            ? `${count(leaks)} ${leaks === 1 ? 'leak' : 'leaks'}, ${count(all.length - leaks)} growing; ${count(data.watched)} places watched`
            : ''
        }
        end={
          <Choice
            label="which suspects"
            options={WHICH}
            value={which}
            onChange={(value) => setWords({ show: value === 'all' ? null : value })}
          />
        }
      />
      {data && <StaleNotice problem={problem} />}
      {!data && problem && <ProblemBox problem={problem} middle />}
      {!data && !problem && <Waiting rows={6} />}
      {data && suspects.length === 0 && <Nothing answer={data} />}
      {suspects.length > 0 && (
        <ol class="verdicts card" aria-label="suspects, the most urgent first">
          {suspects.map((suspect) => {
            const key = suspectKey(suspect)
            return (
              <SuspectItem
                key={key}
                suspect={suspect}
                open={key === shown}
                onToggle={() => setWords({ open: key === shown ? 'none' : key })}
                process
              />
            )
          })}
        </ol>
      )}
      {data && data.stopped.length > 0 && <Stopped list={data.stopped} />}
    </>
  )
}

/** What would otherwise leave no trace: leaks that no longer grow, or whose program ended. */
function Stopped({ list }: { list: SuspectsAnswer['stopped'] }): JSX.Element {
  return (
    <Card title="Found before, no longer growing">
      {list.map((leak) => (
        <p key={`${leak.pid} ${leak.frame} ${leak.found}`}>
          <a style={{ textDecoration: 'underline' }} href={link(`process/${leak.pid}`)}>{leak.program}</a> <span class="muted">{leak.pid}</span>{' '}
          <span class="mono">{leak.frame}</span>{' '}
          <span class="muted">
            {clock(leak.found)} to {clock(leak.last)}, {leak.ended ? 'ended' : 'stopped'} with {bytes(leak.bytes)}
          </span>
        </p>
      ))}
    </Card>
  )
}

function Nothing({ answer }: { answer: SuspectsAnswer }): JSX.Element {
  if (answer.looks < 2)
    return (
      <Empty title="Not known yet" middle>
        <span>memoird has just started and reads what programs account.</span>
      </Empty>
    )
  if (answer.watched === 0)
    return (
      <Empty title="Nothing is watched yet" middle>
        <span>memoird judges programs whose allocations are accounted. Start one with:</span>
        <pre>memoir run ./program</pre>
        <span>To see what a leak looks like, run the demo:</span>
        <pre>memoir demo</pre>
      </Empty>
    )
  if (!answer.ready)
    return (
      <Empty title={`Watching ${count(answer.watched)} places in the code`} middle>
        <span>
          A verdict needs about half a minute of looks; {count(answer.looks)} so far. It appears here by itself.
        </span>
      </Empty>
    )
  return (
    <Empty title="No leak, nothing that grows" middle>
      <span>{count(answer.watched)} places in the code are watched, and none takes memory without giving it back.</span>
    </Empty>
  )
}
