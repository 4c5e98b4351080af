// What happened, newest first.
import type { JSX } from 'preact'
import { events, live } from '../api/stream'
import type { Event } from '../api/types'
import { clock, dateTime } from '../base/format'
import { link, setWords, word } from '../base/route'
import { Badge, Card, Choice, Empty, Waiting, type Tone } from '../kit/parts'

const TONES: Record<string, Tone> = { oom: 'bad', killed: 'warn', leak: 'bad', device: 'warn', tracking: 'accent' }
const QUIET = new Set(['came', 'went'])
const SHOWN_MAX = 80

export function EventFeed(): JSX.Element {
  const all = word('events') === 'all'
  const list = events.value.filter((e) => all || !QUIET.has(e.kind))
  const shown = list.slice(-SHOWN_MAX).reverse()
  return (
    <Card
      title="Events"
      span={6}
      class="event-card"
      end={
        <Choice
          label="which events"
          options={[['', 'that matter'], ['all', 'all']]}
          value={all ? 'all' : ''}
          onChange={(value) => setWords({ events: value })}
        />
      }
    >
      {shown.length > 0 ? (
        <ol class="events" tabIndex={0} aria-label="events, newest first">
          {shown.map((event) => (
            <Line key={event.seq} event={event} />
          ))}
        </ol>
      ) : live.value.state === 'connecting' ? (
        <Waiting rows={4} />
      ) : (
        <Empty title="Quiet so far">
          <span>
            {events.value.length > 0
              ? `Processes came and went (${events.value.length} events), nothing else happened.`
              : 'Processes that start, end or are killed, leaks and devices that fill up are told here.'}
          </span>
        </Empty>
      )}
    </Card>
  )
}

function Line({ event }: { event: Event }): JSX.Element {
  return (
    <li>
      <time class="muted" dateTime={event.time} data-tip={dateTime(event.time)}>
        {clock(event.time)}
      </time>
      <Badge tone={TONES[event.kind] ?? ''}>{event.kind}</Badge>
      {event.pid && event.kind !== 'went' && event.kind !== 'killed' && event.kind !== 'oom' ? (
        <a class="clip" href={link(`process/${event.pid}`)} data-tip={event.message}>
          {event.message}
        </a>
      ) : (
        <span class="clip" data-tip={event.message}>
          {event.message}
        </span>
      )}
    </li>
  )
}
