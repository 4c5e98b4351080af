import type { JSX } from 'preact'
import { Empty } from '../kit/parts'
import type { TrackingState } from './process_tracking'

/** What is only known of programs whose allocations are accounted, and how to make it so. */
export function Untracked({ tracking, what }: { tracking: TrackingState; what: string }): JSX.Element {
  return (
    <Empty title={`${what} needs a tracked program`}>
      <span>
        {tracking.why
          ? `The allocations of this process are not accounted: ${tracking.why}.`
          : 'The allocations of this process are not accounted.'}
      </span>
      {tracking.command && (
        <>
          <span>Start it again with:</span>
          <pre>{tracking.command}</pre>
        </>
      )}
    </Empty>
  )
}
