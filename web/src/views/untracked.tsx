// What is only known of programs whose allocations are accounted, and how to make it so.
import type { JSX } from 'preact'
import { Empty } from '../kit/parts'
import type { TrackingState } from './process_tracking'

/** Is there anything that tells of its allocations: the tracker, or the program itself? */
export const isTracked = (tracking: TrackingState): boolean => tracking.state !== 'none' || !!tracking.source

const WHY: Record<string, string> = {
  'no: not asked': 'it was not started by memoir run',
  'no: static': 'it is linked statically, so that nothing can be loaded into it',
  'no: Go': 'Go programs bring an allocator of their own',
  'no: setuid': 'it has other rights than who started it',
}

/** A part of a sentence, or ''. */
export function whyNot(tracking: TrackingState): string {
  const why = tracking.why ?? ''
  return WHY[why] ?? (why.startsWith('no: ') ? why.slice(4) : '')
}

export function Untracked({ tracking, what }: { tracking: TrackingState; what: string }): JSX.Element {
  const why = whyNot(tracking)
  return (
    <Empty title={`${what} needs a tracked program`}>
      <span>The allocations of this process are not accounted{why && `: ${why}`}.</span>
      {tracking.command && (
        <>
          <span>{tracking.attach ? 'Attach to it while it runs (the button above), or start it again with:' : 'Start it again with:'}</span>
          <pre>{tracking.command}</pre>
        </>
      )}
    </Empty>
  )
}
