// Tracking of one process: whether its allocations are accounted, and the button that stops or starts it, after a question.
import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { post, Problem } from '../api/client'
import { session } from '../api/stream'
import { clock } from '../base/format'
import { Dialog } from '../kit/dialog'
import { Icon } from '../kit/icon'
import { Badge, type Tone } from '../kit/parts'
import { whyNot } from './untracked'

export interface TrackingState {
  state: 'on' | 'off' | 'suspended' | 'none'
  source?: string | null
  why?: string | null
  can?: boolean
  attach?: boolean
  command?: string | null
  as_of?: string | null
}

const WORDS: Record<TrackingState['state'], { badge: string; tone: Tone; tip: string }> = {
  on: { badge: 'Tracked', tone: 'good', tip: 'Every allocation of this process is accounted.' },
  suspended: {
    badge: 'Tracking stopped',
    tone: 'warn',
    tip: 'New allocations pass by uncounted; frees of what was counted still count.',
  },
  off: { badge: 'Not tracked', tone: '', tip: 'It reports nothing at present.' },
  none: { badge: 'Not tracked', tone: '', tip: 'Its allocations are not accounted.' },
}

const ATTACHED = {
  badge: 'Attached',
  tone: 'good' as Tone,
  tip: 'Probes on its allocator account what it allocates since they were put there. Older blocks are not counted.',
}

const REPORTS = {
  badge: 'Reports by itself',
  tone: 'good' as Tone,
  tip: 'It tells what it allocates; its other allocations are not accounted.',
}

const TRACED = {
  badge: 'CUDA traced',
  tone: 'good' as Tone,
  tip: 'Probes on the CUDA driver account its device and pinned memory. Its other allocations are not accounted.',
}

export function Tracking({ pid, program, state }: { pid: number; program: string; state: TrackingState }): JSX.Element {
  const [asking, setAsking] = useState(false)
  const [busy, setBusy] = useState(false)
  const [problem, setProblem] = useState<Problem | null>(null)
  // What memoird said last counts until the next answer of the process tells the same.
  const [told, setTold] = useState<TrackingState['state'] | null>(null)
  const now = told ?? state.state
  if (told !== null && told === state.state) setTold(null)
  const on = now === 'on'
  const attached = on && (state.source === 'attach' || state.attach === true)
  const words = attached ? ATTACHED : now === 'none' && state.source ? (state.source === 'observer' ? TRACED : REPORTS) : WORDS[now]
  const reads = session.value?.role === 'read'
  // Probes can account a process that was not started under the tracker. Where they cannot, say what to do instead.
  const attaches = now === 'none' && state.attach === true
  const cannot = (now === 'none' && !attaches) || state.can === false
  const action = on ? (attached ? 'Detach' : 'Stop tracking') : attaches ? 'Attach' : 'Start tracking'

  const change = async (): Promise<void> => {
    setBusy(true)
    setProblem(null)
    try {
      const answer = await post<{ state: TrackingState['state'] }>(`/processes/${pid}/tracking`, { on: !on })
      setTold(answer.state)
      setAsking(false)
    } catch (error) {
      setProblem(error instanceof Problem ? error : new Problem(0, 'Request failed', String(error)))
    } finally {
      setBusy(false)
    }
  }
  const close = (): void => {
    setAsking(false)
    setProblem(null)
  }
  return (
    <>
      {attached && state.as_of && (
        <span class="muted small" data-tip="It allocates so often that probes are in for part of the time: figures of its heap are estimates, and stand still in between.">
          ~ as of {clock(state.as_of)}
        </span>
      )}
      <Badge tone={words.tone} tip={words.tip + (state.source ? ` Source: ${state.source}.` : '')}>
        {words.badge}
      </Badge>
      <button
        type="button"
        class="button"
        disabled={reads}
        data-tip={
          reads ? 'Your login may look, not change. An owner can give you a token with the role control.' : undefined
        }
        onClick={() => setAsking(true)}
      >
        <Icon name={on ? 'stop' : 'play'} />
        {action}
      </button>
      <Dialog title={`${action}?`} open={asking} onClose={close}>
        <div class="ask">
          <p>
            {cannot
              ? `The allocations of ${program} (PID ${pid}) cannot be accounted from here${whyNot(state) && `: ${whyNot(state)}`}.`
              : attached
                ? `The probes are removed from ${program} (PID ${pid}), and what they counted goes with them. The program itself goes on as it is.`
                : attaches
                  ? `Probes are put on the allocator of ${program} (PID ${pid}) while it runs. From then on its allocations are accounted; what it allocated before stays unknown. Each allocation with its free takes about 2 µs longer.`
                  : on
                ? `New allocations of ${program} (PID ${pid}) will pass by uncounted until tracking starts again: sums and verdicts have a gap from now on. The program itself goes on as it is.`
                : `From now on, allocations of ${program} (PID ${pid}) are accounted. What it allocated before stays unknown. A verdict about leaks takes about half a minute.`}
          </p>
          {problem && (
            <div class="notice bad" role="alert">
              <span>
                <b>{problem.title}</b>
                {problem.detail ? `: ${problem.detail}` : ''}
              </span>
            </div>
          )}
          {(cannot || problem?.status === 409) && state.command && (
            <>
              <p class="muted">To have it tracked, start it again with:</p>
              <pre>{state.command}</pre>
            </>
          )}
          <div class="row ask-end">
            <button type="button" class="button" onClick={close}>
              {cannot ? 'Close' : 'Cancel'}
            </button>
            {!cannot && (
              <button type="button" class="button main-action" disabled={busy} onClick={() => void change()}>
                {busy && attaches ? 'Attaching …' : action}
              </button>
            )}
          </div>
        </div>
      </Dialog>
    </>
  )
}
