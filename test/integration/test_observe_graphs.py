"""Memory and copies that CUDA graphs record are told as recorded, never as live; green contexts share the primary one's memory."""

import json
import os
import subprocess
import unittest
import unittest.mock

from observe_support import BUILD, LIBRARY, live, wait_for
from test_observe_figures import FiguresTest

MIB = 1 << 20

# What the program below has besides that of test_observe_figures.
SETUP = """
primary(0)
import struct
def made(function, *arguments):
    handle = c_void_p()
    result = function(byref(handle), *arguments)
    assert result == 0, result
    return handle
def ok(result):
    assert result == 0, result
def stream():
    return made(c.cuStreamCreate, 1)
def begin(s, mode=2):
    ok(c.cuStreamBeginCapture_v2(s, mode))
def end(s):
    g = c_void_p()
    ok(c.cuStreamEndCapture(s, byref(g)))
    return g
def alloc_on(s, size):
    p = c_uint64()
    ok(c.cuMemAllocAsync(byref(p), c_size_t(size), s))
    return p
def free_on(s, p):
    ok(c.cuMemFreeAsync(p, s))
def node(g, size): # of an allocation; its address
    params = create_string_buffer(struct.pack('IIiiQQ56xQQQQ', 1, 0, 1, 0, 0, 0, 0, 0, size, 0), 120)
    ok(c.cuGraphAddMemAllocNode(byref(c_void_p()), g, None, c_size_t(0), params))
    return c_uint64(struct.unpack_from('Q', params, 112)[0])
def instance(g, flags=0):
    return made(c.cuGraphInstantiateWithFlags, g, c_uint64(flags))
host = create_string_buffer(1 << 20)
"""


class GraphsTest(FiguresTest):
    def begin(self, observer=None, **more):
        observer = observer or self.shared()
        program = self.program(**more)
        program(SETUP)
        return observer, program

    def assert_recorded(self, observer, program, blocks, size, dram=0):
        traced = observer.traced(program.pid)
        graphs = traced["graphs"]
        self.assertEqual((graphs["recorded_blocks"], graphs["recorded"], live(traced, "dram")), (blocks, size, dram))
        self.assertEqual(traced["lost"]["unknown_frees"], 0)
        self.assertEqual(traced["history_live"], dram)
        return traced


class Recording(GraphsTest):
    def test_an_allocation_that_a_stream_records_is_not_live(self):
        observer, program = self.begin()
        program("s = stream(); real = alloc_on(s, 1 << 20); begin(s); p = alloc_on(s, 4 << 20)")
        self.assertEqual(self.assert_recorded(observer, program, 1, 4 * MIB, MIB)["graphs"]["capturing_streams"], 1)
        program("ok(c.cuMemcpyHtoDAsync_v2(p, host, c_size_t(4096), s)); ok(c.cuMemsetD8Async(p, 1, c_size_t(64), s))")
        program("free_on(s, p); g = end(s); e = instance(g)")
        traced = self.assert_recorded(observer, program, 1, 4 * MIB, MIB)
        self.assertEqual(traced["copies"]["to_device"]["copies"], 0)
        graphs = traced["graphs"]
        self.assertEqual((graphs["recorded_copies"], graphs["recorded_copied"], graphs["capturing_streams"]), (1, 4096, 0))
        program("ok(c.cuGraphLaunch(e, s)); ok(c.cuGraphLaunch(e, s))")  # not observed: nothing changes
        self.assert_recorded(observer, program, 1, 4 * MIB, MIB)
        program("ok(c.cuMemcpyHtoDAsync_v2(real, host, c_size_t(4096), s))")  # the stream works again
        self.assertEqual(observer.traced(program.pid)["copies"]["to_device"]["copies"], 1)
        program("ok(c.cuGraphDestroy(g))")
        self.assert_recorded(observer, program, 1, 4 * MIB, MIB)  # the executable graph has it still
        program("ok(c.cuGraphExecDestroy(e))")
        self.assert_recorded(observer, program, 0, 0, MIB)

    def test_a_stream_that_joined_records_too_and_other_threads_work(self):
        observer, program = self.begin()
        program("s, other = stream(), stream(); event = made(c.cuEventCreate, 0); begin(s)")
        program("ok(c.cuEventRecord(event, s)); ok(c.cuStreamWaitEvent(other, event, 0)); p = alloc_on(other, 2 << 20)")
        self.assert_recorded(observer, program, 1, 2 * MIB)
        program("import threading\n"
                "def work():\n    primary(0); global q; q = alloc_on(stream(), 3 << 20)\n"
                "t = threading.Thread(target=work); t.start(); t.join()")
        self.assert_recorded(observer, program, 1, 2 * MIB, 3 * MIB)
        program("g = end(s); q = alloc_on(other, 1 << 20)")
        self.assert_recorded(observer, program, 1, 2 * MIB, 4 * MIB)
        program("ok(c.cuGraphDestroy(g))")
        self.assert_recorded(observer, program, 0, 0, 4 * MIB)

    def test_a_recording_that_fails_leaves_nothing(self):
        observer, program = self.begin()
        program("s = stream(); begin(s); p = alloc_on(s, 2 << 20)")
        self.assertEqual(program("r = c.cuStreamQuery(s)"), 900)
        self.assertEqual(program("g = c_void_p(); r = c.cuStreamEndCapture(s, byref(g))"), 901)
        self.assert_recorded(observer, program, 0, 0)
        program("begin(s); p = alloc_on(s, 2 << 20); ok(c.cuStreamDestroy_v2(s))")
        traced = self.assert_recorded(observer, program, 0, 0)
        self.assertEqual(traced["graphs"]["capturing_streams"], 0)
        program("s = stream(); p = alloc_on(s, 2 << 20)")  # most likely the same handle
        self.assert_recorded(observer, program, 0, 0, 2 * MIB)

    def test_a_batch_that_is_recorded_is_no_copy(self):
        observer, program = self.begin()
        program("s = stream(); a, b = alloc(1 << 20), alloc(1 << 20); begin(s)")
        program("ok(c.cuMemcpyDtoDAsync_v2(a, b, c_size_t(1000), s)); ok(c.cuMemcpyAsync(a, b, c_size_t(24), s)); g = end(s)")
        traced = observer.traced(program.pid)
        self.assertEqual(sum(way["copies"] for way in traced["copies"].values()), 0)
        self.assertEqual((traced["graphs"]["recorded_copies"], traced["graphs"]["recorded_copied"]), (2, 1024))


class Nodes(GraphsTest):
    def test_memory_of_a_node_goes_with_the_last_graph_that_has_it(self):
        observer, program = self.begin()
        program("g = made(c.cuGraphCreate, 0); p = node(g, 5 << 20); q = node(g, 3 << 20); e = instance(g, 1); f = instance(g)")
        self.assert_recorded(observer, program, 2, 8 * MIB)
        program("ok(c.cuGraphLaunch(e, None)); ok(c.cuMemcpyHtoD_v2(p, host, c_size_t(4096)))")
        traced = self.assert_recorded(observer, program, 2, 8 * MIB)
        self.assertEqual(traced["copies"]["to_device"]["copies"], 1)  # a call of its own, to memory of the graph
        program("ok(c.cuMemFree_v2(p)); ok(c.cuMemFreeAsync(q, None))")  # of what the launch allocated
        self.assert_recorded(observer, program, 2, 8 * MIB)
        program("ok(c.cuGraphExecDestroy(e)); ok(c.cuGraphDestroy(g))")
        self.assert_recorded(observer, program, 2, 8 * MIB)
        program("ok(c.cuGraphExecDestroy(f))")
        self.assertEqual(self.assert_recorded(observer, program, 0, 0)["blocks"], 0)

    def test_nodes_of_any_kind(self):
        observer, program = self.begin()
        program("g = made(c.cuGraphCreate, 0); a = alloc(1 << 20)")
        program("params = create_string_buffer(struct.pack('I12xIIiiQQ56xQQQQ', 10, 1, 0, 1, 0, 0, 0, 0, 0, 2 << 20, 0), 256)")
        program("ok(c.cuGraphAddNode(byref(c_void_p()), g, None, c_size_t(0), params))")
        program("ok(c.cuGraphAddNode_v2(byref(c_void_p()), g, None, None, c_size_t(0), params))")
        self.assert_recorded(observer, program, 2, 4 * MIB, MIB)
        # CUDA_MEMCPY3D: from the host to the device, 256 bytes in 2 rows.
        program("copy = bytearray(200); struct.pack_into('IxxxxQ', copy, 32, 1, ctypes.addressof(host));"
                "struct.pack_into('IxxxxQQ', copy, 120, 2, 0, a.value); struct.pack_into('QQQ', copy, 176, 256, 2, 1)")
        program("ok(c.cuGraphAddMemcpyNode(byref(c_void_p()), g, None, c_size_t(0), create_string_buffer(bytes(copy)), None))")
        program("any = create_string_buffer(struct.pack('I28x', 1) + bytes(copy), 256)")
        program("ok(c.cuGraphAddNode(byref(c_void_p()), g, None, c_size_t(0), any))")
        traced = self.assert_recorded(observer, program, 2, 4 * MIB, MIB)
        self.assertEqual((traced["graphs"]["recorded_copies"], traced["graphs"]["recorded_copied"]), (2, 1024))
        self.assertEqual(traced["lost"]["unreadable"], 0)

    def test_recording_into_a_graph_that_is_there(self):
        observer, program = self.begin()
        program("g = made(c.cuGraphCreate, 0); p = node(g, 1 << 20); s = stream()")
        program("ok(c.cuStreamBeginCaptureToGraph(s, g, None, None, c_size_t(0), 2)); q = alloc_on(s, 2 << 20); end(s)")
        self.assert_recorded(observer, program, 2, 3 * MIB)
        program("ok(c.cuGraphDestroy(g))")
        self.assert_recorded(observer, program, 0, 0)

    def test_the_next_observer_goes_on(self):
        observer, program = self.begin(self.observer())
        program("s = stream(); begin(s); p = alloc_on(s, 2 << 20)")
        self.assert_recorded(observer, program, 1, 2 * MIB)
        observer.kill()
        program("q = alloc_on(s, 2 << 20); g = end(s)")
        observer.start()
        self.assert_recorded(observer, program, 2, 4 * MIB)
        program("ok(c.cuGraphDestroy(g))")
        self.assert_recorded(observer, program, 0, 0)

    def test_graphs_of_one_process_have_a_quota(self):
        observer, program = self.begin()
        program("all = []\nfor i in range(2500): g = made(c.cuGraphCreate, 0); node(g, 4096); all.append(g)")
        traced = observer.traced(program.pid)
        kept = traced["graphs"]["recorded_blocks"]
        self.assertEqual((kept, traced["lost"]["blocks"]), (2048, 2500 - 2048))  # a group and a handle for each
        program("for g in all: c.cuGraphDestroy(g)")
        self.assert_recorded(observer, program, 0, 0)


class Told(GraphsTest):
    """What commands say of it."""

    def setUp(self):
        super().setUp()
        more = {"MEMOIR_NVML": str(LIBRARY.parent / "libnvidia-ml.so.1"), "MEMOIR_STANDIN_DIR": str(self.folder)}
        patch = unittest.mock.patch.dict(os.environ, more)
        patch.start()
        self.addCleanup(patch.stop)

    def memoir(self, observer, *words):
        done = subprocess.run([BUILD / "src/cli/memoir", "trace", *map(str, words), "--socket", observer.socket],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_owners_name_the_memory_of_graphs(self):
        observer, program = self.begin(self.observer())
        program("a = alloc(4 << 20); g = made(c.cuGraphCreate, 0); p = node(g, 6 << 20); e = instance(g)")
        wait_for("NVML's figure", lambda: observer.traced(program.pid).get("devices"))

        def kinds():
            told = json.loads(self.memoir(observer, "owners", program.pid, "--json"))
            kinds = {}
            for owner in told["owners"]:
                kinds[owner["kind"]] = kinds.get(owner["kind"], 0) + owner["bytes"]
            self.assertEqual(sum(kinds.values()), told["driver"][0]["used"])
            return kinds
        self.assertNotIn("CUDA graphs", kinds())
        program("ok(c.cuGraphLaunch(e, None))")
        before = kinds()
        self.assertEqual((before["CUDA graphs"], before.get("unknown", 0)), (6 * MIB, 0))
        program("ok(c.cuMemFree_v2(p))")
        self.assertEqual(kinds(), before)  # the driver keeps it for the next launch
        program("ok(c.cuGraphExecDestroy(e)); ok(c.cuGraphDestroy(g))")
        self.assertEqual(kinds(), before)  # and for the next graph
        program("ok(c.cuDeviceGraphMemTrim(0))")
        self.assertNotIn("CUDA graphs", kinds())

    def test_the_history_has_it_as_recorded(self):
        observer, program = self.begin(self.observer())
        program("g = made(c.cuGraphCreate, 0); p = node(g, 6 << 20); e = instance(g); ok(c.cuGraphLaunch(e, None))")
        program("for i in range(5): ok(c.cuMemcpyHtoD_v2(p, host, c_size_t(4096)))")
        observer.ask("flush")
        hot = json.loads(self.memoir(observer, "hot", program.pid, "--json"))
        block = [b for b in hot["buffers"] if b["size"] == 6 * MIB]
        self.assertEqual([(b["class"], b["state"], b["to_device_copies"]) for b in block], [("graph", "recorded", 5)], hot)
        listed = json.loads(self.memoir(observer, "list", "--json"))["processes"]
        self.assertEqual([p["recorded"] for p in listed if p["pid"] == program.pid], [6 * MIB])
        path = self.folder / "run.trace"
        path.write_bytes(observer.ask(f"dump {program.pid}"))
        done = subprocess.run([BUILD / "src/cli/memoir", "trace", "load", path], capture_output=True, text=True, timeout=60)
        self.assertIn("6.3 MB in 1 allocation recorded; launches are not observed", done.stdout, done)


class Green(GraphsTest):
    def green(self, observer, program):
        program("all = create_string_buffer(144); ok(c.cuDeviceGetDevResource(0, all, 1)); n = c_uint(1)")
        program("part = create_string_buffer(144); ok(c.cuDevSmResourceSplitByCount(part, byref(n), all, None, 0, 16))")
        program("d = made(c.cuDevResourceGenerateDesc, part, 1); green = made(c.cuGreenCtxCreate, d, 0, 1)")
        program("context = made(c.cuCtxFromGreenCtx, green); ok(c.cuCtxSetCurrent(context))")

    def test_its_memory_outlives_it_and_goes_with_the_primary_context(self):
        observer, program = self.begin()
        self.green(observer, program)
        program("a = alloc(2 << 20)")
        self.assertEqual(live(observer.traced(program.pid), "dram"), 2 * MIB)
        program("ok(c.cuDevicePrimaryCtxRelease_v2(0))")  # the green one keeps the primary context
        self.assertEqual(live(observer.traced(program.pid), "dram"), 2 * MIB)
        program("primary(0); ok(c.cuGreenCtxDestroy(green))")
        self.assertEqual(live(observer.traced(program.pid), "dram"), 2 * MIB)
        program("ok(c.cuDevicePrimaryCtxRelease_v2(0))")
        self.assertEqual(live(observer.traced(program.pid), "dram"), 0)

    def test_the_last_green_context_takes_the_memory_along(self):
        observer, program = self.begin()
        self.green(observer, program)
        program("a = alloc(2 << 20); ok(c.cuDevicePrimaryCtxRelease_v2(0))")
        self.assertNotEqual(program("r = c.cuGreenCtxDestroy(c_void_p(64))"), 0)
        self.assertEqual(live(observer.traced(program.pid), "dram"), 2 * MIB)
        program("ok(c.cuGreenCtxDestroy(green))")
        self.assertEqual(live(observer.traced(program.pid), "dram"), 0)

    def test_a_destruction_that_fails_changes_nothing(self):
        observer, program = self.begin(MEMOIR_STANDIN_FAIL="cuGreenCtxDestroy:1")
        self.green(observer, program)
        program("a = alloc(2 << 20); ok(c.cuDevicePrimaryCtxRelease_v2(0))")
        self.assertNotEqual(program("r = c.cuGreenCtxDestroy(green)"), 0)
        self.assertEqual(live(observer.traced(program.pid), "dram"), 2 * MIB)
        program("ok(c.cuGreenCtxDestroy(green))")
        self.assertEqual(live(observer.traced(program.pid), "dram"), 0)

    def test_a_reset_leaves_contexts_that_are_not_primary(self):
        observer, program = self.begin()
        program("own = c_void_p(); ok(c.cuCtxCreate_v2(byref(own), 0, 0)); a = alloc(2 << 20); primary(0); b = alloc(1 << 20)")
        program("ok(c.cuDevicePrimaryCtxReset_v2(0))")
        self.assertEqual(live(observer.traced(program.pid), "dram"), 2 * MIB)


if __name__ == "__main__":
    unittest.main()
