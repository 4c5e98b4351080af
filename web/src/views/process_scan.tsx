// A scan of one process for heap blocks that it can no longer reach: the button, the question before, and what was found.
import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { post, Problem } from '../api/client'
import type { Scan as ScanAnswer, ScanSum } from '../api/schema'
import { session } from '../api/stream'
import { bytes, count, wholeDuration } from '../base/format'
import { Dialog } from '../kit/dialog'
import { Icon } from '../kit/icon'

const sum = (of: ScanSum): string => `${bytes(of.bytes)} in ${count(of.blocks)} ${of.blocks === 1 ? 'block' : 'blocks'}`

export function Scan({ pid, program }: { pid: number; program: string }): JSX.Element {
  const [open, setOpen] = useState(false)
  const [busy, setBusy] = useState(false)
  const [found, setFound] = useState<ScanAnswer | null>(null)
  const [problem, setProblem] = useState<Problem | null>(null)
  const reads = session.value?.role === 'read'
  const close = (): void => {
    setOpen(false)
    setFound(null)
    setProblem(null)
  }
  const scan = async (): Promise<void> => {
    setBusy(true)
    setProblem(null)
    try {
      setFound(await post<ScanAnswer>(`/processes/${pid}/scan`, {}))
    } catch (error) {
      setProblem(error instanceof Problem ? error : new Problem(0, 'Request failed', String(error)))
    } finally {
      setBusy(false)
    }
  }
  return (
    <>
      <button
        type="button"
        class="button"
        disabled={reads}
        data-tip={reads ? 'Your login may look, not change. An owner can give you a token with the role control.' : undefined}
        onClick={() => setOpen(true)}
      >
        <Icon name="search" />
        Scan for lost blocks
      </button>
      <Dialog title={found ? `Lost blocks of ${program}` : 'Scan for lost blocks?'} open={open} onClose={close}>
        <div class="ask">
          {found ? <Found scan={found} /> : (
            <p>
              {program} (PID {pid}) stands still while its memory is read, 8 s at most. Blocks that no pointer leads to are shown by the line that allocated them.
            </p>
          )}
          {problem && (
            <div class="notice bad" role="alert">
              <span>
                <b>{problem.title}</b>
                {problem.detail ? `: ${problem.detail}` : ''}
              </span>
            </div>
          )}
          <div class="row ask-end">
            <button type="button" class="button" onClick={close}>
              Close
            </button>
            {!found && (
              <button type="button" class="button main-action" disabled={busy} onClick={() => void scan()}>
                {busy ? 'Scanning…' : 'Scan'}
              </button>
            )}
          </div>
        </div>
      </Dialog>
    </>
  )
}

function Found({ scan }: { scan: ScanAnswer }): JSX.Element {
  return (
    <>
      <p>
        Lost: {sum(scan.lost)}; indirectly lost: {sum(scan.indirectly_lost)}; reachable: {sum(scan.reachable)}. It was paused for{' '}
        {Math.ceil(scan.stood_still * 1000)} ms.
        {!scan.proof && ' Not all of its memory could be read, so some of these blocks may be in use.'}
      </p>
      {scan.sites.length > 0 && (
        <ul class="lines scan-sites">
          {scan.sites.map((site, i) => (
            <li key={i}>
              <span class="clip mono">
                {site.site ?? 'unknown line'}
                {site.via && <span class="muted"> via {site.via}</span>}
              </span>
              <span class="num">{bytes(site.bytes)}</span>
              <span class="num muted">{count(site.blocks)} ×</span>
              <span class="muted">{site.state === 'lost' ? wholeDuration(site.oldest) + ' old' : site.state}</span>
            </li>
          ))}
        </ul>
      )}
      {scan.sites_left_out > 0 && <p class="muted">{count(scan.sites_left_out)} more lines</p>}
    </>
  )
}
