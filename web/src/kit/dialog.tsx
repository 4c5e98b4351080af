// A dialog over the page: the browser's own, which keeps the focus inside and closes with Escape.
import type { ComponentChildren, JSX } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import { Icon } from './icon'

interface DialogProps {
  title: string
  open: boolean
  onClose: () => void
  children: ComponentChildren
}

export function Dialog({ title, open, onClose, children }: DialogProps): JSX.Element {
  const ref = useRef<HTMLDialogElement>(null)
  useEffect(() => {
    const dialog = ref.current
    if (!dialog) return
    if (open && !dialog.open) dialog.showModal()
    if (!open && dialog.open) dialog.close()
  }, [open])
  return (
    <dialog
      ref={ref}
      aria-label={title}
      onClose={onClose}
      onClick={(event) => event.target === ref.current && onClose()}
    >
      {open && (
        <>
          <div class="dialog-head">
            <h2>{title}</h2>
            <button type="button" class="button plain icon" aria-label="close" onClick={onClose}>
              <Icon name="close" />
            </button>
          </div>
          <div class="dialog-body">{children}</div>
        </>
      )}
    </dialog>
  )
}
