// The CUDA trace of a process on the page, with a memoird that observes a program on the stand-in driver. It needs root and
// BPF: where memoird cannot trace, the page says why, which is what is looked at then.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { assertAccessible, assertFits, picture, textOf, visit } from './browser.mjs'
import { BUILD, until, World } from './world.mjs'

const STANDIN = join(BUILD, 'src/standin')

export function cudaTests(scene, test) {
  test('a page tells that and why nothing is traced', async () => {
    const { page, world } = scene
    await visit(page, world.url, `process/${scene.leak.pid}?tab=cuda`)
    await page.getByText('CUDA programs are not traced here').waitFor()
    await page.getByText('looks at one directory only').or(page.getByText('does not run as root')).first().waitFor()
    await visit(page, world.url, 'self')
    await page.getByRole('heading', { name: 'Tracing of CUDA programs' }).waitFor()
    await textOf(page.locator('.card', { hasText: 'Tracing of CUDA programs' }).locator('.badge'), /off/)
  })

  test('the trace of a CUDA program is on the page', async (context) => {
    const world = new World()
    try {
      await world.startDaemon(
        ...['--trace', 'yes', '--trace-socket', join(world.folder, 'observe.sock')],
        ...['--trace-library', join(STANDIN, 'libcuda.so.1')],
      )
      const state = await until('tracing starts or cannot', () => /tracing CUDA programs|CUDA programs are not traced.*/.exec(world.daemon.text)?.[0] ?? (process.getuid() === 0 ? null : 'needs root'))
      if (state !== 'tracing CUDA programs') return context.skip(state)
      world.env = { ...world.env, LD_LIBRARY_PATH: STANDIN, MEMOIR_STANDIN_DIR: world.folder }
      const train = world.start(join(STANDIN, 'cuda_train'), '--step-ms', '20')
      const pid = train.child.pid
      const login = await scene.browser.context()
      const page = await scene.browser.page(login, world.url)
      await page.goto(world.loginLink())
      await visit(page, world.url, `process/${pid}?tab=cuda`)
      await page.getByRole('heading', { name: 'Device memory by holder' }).waitFor()
      await page.getByText('Pinning would save').waitFor()
      const holders = page.locator('.card', { hasText: 'Device memory by holder' })
      await textOf(holders.locator('.legend'), /load_weights|cuda_train/)
      await textOf(holders.locator('.trace-stack'), /main/)
      const hot = page.getByRole('grid', { name: 'buffers that were copied most' }).or(page.getByRole('table', { name: 'buffers that were copied most' }))
      await textOf(hot, /pinned/)
      await textOf(page.locator('.card', { hasText: 'Never copied' }), /100\.7 MB/) // the lookup table
      // The stack of the area under the pointer.
      const box = await holders.locator('.u-over').boundingBox()
      await page.mouse.move(box.x + box.width - 4, box.y + box.height - 6)
      await textOf(holders.locator('.trace-stack'), /Under the pointer/)
      await page.mouse.move(2, 2)
      await assertAccessible(scene.browser, page, 'CUDA')
      await assertFits(page, 'CUDA')
      await picture(page, 'process-cuda')
      await page.getByRole('button', { name: 'Cold' }).click()
      await page.getByRole('heading', { name: 'Cold buffers' }).waitFor()
      await visit(page, world.url, 'devices')
      await textOf(page.locator('.transfers'), /cuda_train.*[MG]B to/s)
      await picture(page, 'devices-cuda')
      await visit(page, world.url, 'self')
      await textOf(page.locator('.card', { hasText: 'Tracing of CUDA programs' }), /cuda_train/)
      await login.close()
      assert.equal(train.ended, null)
    } finally {
      await world.end()
    }
  })

  test('why memory is pinned, and which lines to change, are on the page', async () => {
    const world = new World()
    try {
      await world.startDaemon()
      world.env = {
        ...world.env,
        ...{ LD_LIBRARY_PATH: STANDIN, MEMOIR_STANDIN_DIR: world.folder, MEMOIR_PIN_CACHE: join(world.folder, 'cache') },
        ...{ LD_PRELOAD: join(BUILD, 'src/pin/libmemoir-cuda.so'), MEMOIR_PIN: 'auto', MEMOIR_PIN_BUDGET: 'unlimited', PIN_DRIVE_HOLD: '1' },
      }
      const drive = world.start(join(BUILD, 'test/cuda/pin_drive'), 'together', '1048576')
      await until('the program has copied', () => drive.text.includes('"wrong": 0'))
      delete world.env.LD_PRELOAD
      const login = await scene.browser.context()
      const page = await scene.browser.page(login, world.url)
      await page.goto(world.loginLink())
      await visit(page, world.url, `process/${drive.child.pid}?tab=cuda`)
      const card = page.locator('.card.pinning')
      await textOf(card, /Machine \(kernel\)/)
      await textOf(card, /hot_block/)
      await textOf(card.getByRole('table', { name: 'call sites worth pinning' }).or(card.getByRole('grid', { name: 'call sites worth pinning' })), /Advice.*(pin|reuse)/s)
      await assertAccessible(scene.browser, page, 'pinning')
      await assertFits(page, 'pinning')
      await picture(page, 'process-pinning')
      await login.close()
    } finally {
      await world.end()
    }
  })
}
