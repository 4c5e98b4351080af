// Whether the CUDA calls of a process are recorded, and the button that stops or goes on.
import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { post, Problem } from '../api/client'
import { useResource } from '../api/resource'
import type { Traced } from '../api/schema'
import { session } from '../api/stream'
import { Icon } from '../kit/icon'

export function Recording({ pid }: { pid: number }): JSX.Element | null {
  const { data } = useResource<Traced>('/traced', {}, { every: 2000 })
  const [busy, setBusy] = useState(false)
  const [problem, setProblem] = useState<Problem | null>(null)
  // What memoird answered counts until the list says the same.
  const [told, setTold] = useState<boolean | null>(null)
  const row = data?.processes.find((process) => process.pid === pid)
  if (!row) return null
  if (told !== null && told === row.paused) setTold(null)
  const paused = told ?? row.paused
  const change = async (): Promise<void> => {
    setBusy(true)
    setProblem(null)
    try {
      const answer = await post<{ state: 'on' | 'paused' }>(`/processes/${pid}/tracing`, { on: paused })
      setTold(answer.state === 'paused')
    } catch (error) {
      setProblem(error instanceof Problem ? error : new Problem(0, 'Request failed', String(error)))
    } finally {
      setBusy(false)
    }
  }
  return (
    <div class="tab-tools">
      <span class="muted">{paused ? 'Recording is stopped: the trace has a gap, totals go on.' : 'Every CUDA allocation and copy is recorded.'}</span>
      {problem && (
        <span class="bad" role="alert">
          {problem.detail || problem.title}
        </span>
      )}
      <button type="button" class="button" disabled={busy || session.value?.role === 'read'} onClick={() => void change()}>
        <Icon name={paused ? 'play' : 'stop'} />
        {paused ? 'Record again' : 'Stop recording'}
      </button>
    </div>
  )
}
