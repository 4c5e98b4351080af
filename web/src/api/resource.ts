// A question that a view keeps asking: once now, and again after each tick while the page is visible. Answers that
// did not change (304) cost nothing; a slow answer is asked for less often, so that a page never keeps memoird
// or the browser busy for more than about a tenth of the time.
import { useEffect, useState } from 'preact/hooks'
import { fetchJson, Problem, viewAddress, type Arguments } from './client'
import { tick } from './stream'

export interface Resource<T> {
  data: T | null
  /** Why the last try failed; `data` is then of before. */
  problem: Problem | null
  /** Asked anew with other arguments, not answered yet. */
  loading: boolean
}

const SHARE = 10
const WAIT_MS_MAX = 30_000

export interface ResourceOptions {
  /** Ask again not before so many ms; 0: after each tick; Infinity: once */
  every?: number
}

/** `path` null: nothing to ask. */
export function useResource<T>(path: string | null, args: Arguments = {}, options: ResourceOptions = {}): Resource<T> {
  const url = path == null ? null : viewAddress(path, args)
  const every = options.every ?? 0
  const [state, setState] = useState<Resource<T> & { url: string | null }>({
    url: null,
    data: null,
    problem: null,
    loading: true,
  })
  useEffect(() => {
    if (url == null) return
    const asking = new Asking<T>(url, every, (change) =>
      setState((before) => ({ ...before, ...change, url, loading: false })),
    )
    const stop = tick.subscribe(() => asking.look())
    const seen = (): void => asking.look()
    document.addEventListener('visibilitychange', seen)
    return () => {
      stop()
      document.removeEventListener('visibilitychange', seen)
      asking.stop()
    }
  }, [url, every])
  return { data: state.data, problem: state.problem, loading: state.url !== url }
}

class Asking<T> {
  private etag: string | null = null
  private next = 0
  private failures = 0
  private busy = false
  private readonly abort = new AbortController()
  private timer: ReturnType<typeof setTimeout> | undefined

  constructor(
    private readonly url: string,
    private readonly every: number,
    private readonly tell: (change: { data?: T; problem: Problem | null }) => void,
  ) {
    void this.ask()
  }

  /** A tick came, or the page is seen again. */
  look(): void {
    if (!this.busy && !document.hidden && performance.now() >= this.next) void this.ask()
  }

  stop(): void {
    clearTimeout(this.timer)
    this.abort.abort()
  }

  private async ask(): Promise<void> {
    this.busy = true
    clearTimeout(this.timer)
    const from = performance.now()
    try {
      const answer = await fetchJson<T>(this.url, this.etag, this.abort.signal)
      this.failures = 0
      if (answer) {
        this.etag = answer.etag
        this.tell({ data: answer.data, problem: null })
      } else {
        this.tell({ problem: null })
      }
      const took = performance.now() - from
      this.next = from + Math.max(this.every, took < 100 ? 0 : took * SHARE)
    } catch (error) {
      if (this.abort.signal.aborted) return
      this.fail(error)
    } finally {
      this.busy = false
    }
  }

  private fail(error: unknown): void {
    const problem = error instanceof Problem ? error : new Problem(0, 'The answer could not be read', String(error))
    this.failures++
    this.tell({ problem })
    // What is wrong with the question stays wrong.
    if (problem.status >= 400 && problem.status < 500 && problem.status !== 429 && problem.status !== 408) {
      this.next = problem.status === 404 ? performance.now() + 2000 : Infinity
      return
    }
    const wait = problem.retryAfter ? problem.retryAfter * 1000 : Math.min(WAIT_MS_MAX, 500 * 2 ** this.failures)
    this.next = performance.now() + wait
    this.timer = setTimeout(() => this.look(), wait + 50)
  }
}
