// Whether the CUDA calls of a process are traced, and the button that stops or goes on.
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
  if (told !== null && told === row.off) setTold(null)
  const off = told ?? row.off
  const change = async (): Promise<void> => {
    setBusy(true)
    setProblem(null)
    try {
      const answer = await post<{ state: 'on' | 'off' }>(`/processes/${pid}/tracing`, { on: off })
      setTold(answer.state === 'off')
    } catch (error) {
      setProblem(error instanceof Problem ? error : new Problem(0, 'Request failed', String(error)))
    } finally {
      setBusy(false)
    }
  }
  return (
    <div class="tab-tools">
      <span class="muted">{off ? 'Tracing is switched off: what is shown is from before. No figure of the process is kept meanwhile.' : 'Every CUDA allocation and copy is recorded.'}</span>
      {problem && (
        <span class="bad" role="alert">
          {problem.detail || problem.title}
        </span>
      )}
      <button type="button" class="button" disabled={busy || session.value?.role === 'read'} onClick={() => void change()}>
        <Icon name={off ? 'play' : 'stop'} />
        {off ? 'Trace again' : 'Stop tracing'}
      </button>
    </div>
  )
}
