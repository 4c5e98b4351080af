"""Look into the heap of a program under libmemoir-malloc, alive or as a core, without running any of its code.

    (gdb) source memoir-malloc-gdb.py
    (gdb) memoir heap             what the heap is made of: nodes, sizes, threads
    (gdb) memoir block ADDRESS    which block an address is in, whether it is free, and of a hardened program who allocated it

Needs debug information of the library, for the layout of its structures. `call (int)memoir_malloc_check(2)` and
`call (void)memoir_malloc_dump(2)` do the like in a live process, and need none.
"""

import gdb


def constant(name):
    return int(gdb.parse_and_eval(name))


def number(value):
    return int(value)


class Layout:
    """What is needed of the library's types; made anew for each command, as another program may be loaded."""

    def __init__(self):
        try:
            self.slab = gdb.lookup_type("struct slab")
            self.record = gdb.lookup_type("struct hard_record")
            self.main = gdb.parse_and_eval("&source_main")
        except gdb.error as error:
            raise gdb.GdbError(f"no debug information of libmemoir-malloc: {error}")
        self.slices = constant("MACRO_SLICES")
        self.slice_bytes = constant("SLICE_BYTES")
        self.macro_bytes = constant("MACRO_BYTES")
        self.large = constant("SLAB_LARGE")
        self.unused = constant("SLAB_UNUSED")
        self.word = gdb.lookup_type("unsigned long")

    def sources(self):
        yield self.main
        more = gdb.parse_and_eval("sources_more")
        for i in range(constant("sources_n") - 1):
            yield more[i].address

    def macros(self, source):
        macro = source["macros"]
        while number(macro):
            yield macro
            macro = macro["next"]

    def slab_at(self, macro, i):
        return (macro.cast(self.slab.pointer()) + i).dereference()

    def slabs(self, macro):
        """Each with its first slice."""
        i = 1
        while i < self.slices:
            free = number(macro["free"][i // 64]) >> i % 64 & 1
            slab = self.slab_at(macro, i)
            if not free:
                yield i, slab
            i += 1 if free else max(1, number(slab["slices"]))

    def memory(self, macro, i):
        return number(macro) + i * self.slice_bytes

    def kind(self, address):
        shift, leaf_shift = constant("MAP_UNIT_SHIFT"), constant("MAP_LEAF_SHIFT")
        near = (address - number(gdb.parse_and_eval("map_near_from"))) >> shift
        if 0 <= near < constant("MAP_NEAR_UNITS"):
            return number(gdb.parse_and_eval("map_near")[near])
        unit = address >> shift
        if unit >> leaf_shift >= 1 << constant("MAP_TOP_SHIFT"):
            return constant("MAP_NONE")
        leaf = gdb.parse_and_eval("map_top")[unit >> leaf_shift]
        return number(leaf[unit % (1 << leaf_shift)]) if number(leaf) else constant("MAP_NONE")

    def remote(self, slab):
        """State, blocks that others freed, and the first of them as an address within the slab, or 0."""
        word = number(slab["remote"])
        head = word >> constant("REMOTE_HEAD_SHIFT")
        count = (word & ((1 << constant("REMOTE_USED_SHIFT")) - 1)) >> constant("REMOTE_COUNT_SHIFT")
        return word & 3, count, (head - 1) * constant("SIZE_STEP") if head else None

    def chain(self, first, limit):
        """Addresses of a list of free blocks, as far as they can be read."""
        seen = []
        while first and len(seen) <= limit:
            seen.append(first)
            try:
                first = number(gdb.Value(first).cast(self.word.pointer()).dereference())
            except gdb.MemoryError:
                break
        return seen

    def free_blocks(self, slab, memory):
        limit = number(slab["limit"])
        _, _, head = self.remote(slab)
        own = self.chain(number(slab["free"]), limit)
        others = self.chain(memory + head, limit) if head is not None else []
        return set(own), set(others)


STATES = {0: "owned", 1: "full", 2: "pooled"}


class Memoir(gdb.Command):
    """The heap of libmemoir-malloc: memoir heap, memoir block ADDRESS."""

    def __init__(self):
        super().__init__("memoir", gdb.COMMAND_DATA, gdb.COMPLETE_NONE, True)


class Heap(gdb.Command):
    """What the heap is made of: nodes, sizes, threads."""

    def __init__(self):
        super().__init__("memoir heap", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        layout = Layout()
        for source in layout.sources():
            self.source(layout, source)
        self.heaps()

    def source(self, layout, source):
        sizes, large = {}, [0, 0, 0]
        for macro in layout.macros(source):
            for _, slab in layout.slabs(macro):
                kind = number(slab["class"])
                if kind == layout.large:
                    large = [large[0] + 1, large[1] + number(slab["asked"]), large[2] + number(slab["slices"])]
                elif kind != layout.unused:
                    row = sizes.setdefault(number(slab["block_bytes"]), [0, 0, 0, 0, {}])
                    state, back, _ = layout.remote(slab)
                    held, used = number(slab["held"]), number(slab["used"])
                    out = number(slab["limit"]) + used - held if held else used - number(slab["current"])
                    row[0] += out - back
                    row[1] += number(slab["made"])
                    row[2] += 1
                    row[3] += number(slab["slices"])
                    row[4][state] = row[4].get(state, 0) + 1
        print(f"node {number(source['node'])}: {number(source['n_macros'])} macro-blocks, "
              f"{number(source['n_used']) * layout.slice_bytes >> 10} KiB in slabs, "
              f"{number(source['n_dirty_free']) * layout.slice_bytes >> 10} KiB kept free")
        for size, (used, made, slabs, slices, states) in sorted(sizes.items()):
            told = ", ".join(f"{n} {STATES.get(state, '?')}" for state, n in sorted(states.items()))
            print(f"  blocks of {size}: {used} used of {made} made, in {slabs} slabs ({told}) "
                  f"of {slices * layout.slice_bytes >> 10} KiB")
        if large[0]:
            print(f"  large blocks: {large[0]}, {large[1] >> 10} KiB asked, in {large[2] * layout.slice_bytes >> 10} KiB")

    def heaps(self):
        heap = gdb.parse_and_eval("heap_all")
        classes = constant("SIZE_CLASSES")
        while number(heap):
            slabs = sum(number(heap["bin"][i]["open"]["n"]) for i in range(classes))
            if number(heap["tid"]) or slabs:
                print(f"heap of thread {number(heap['tid'])}: {slabs} slabs with free blocks, {number(heap['spare'][0]['n']) + number(heap['spare'][1]['n'])} spare")
            heap = heap["next"]


class Block(gdb.Command):
    """Which block an address is in, whether it is free, and of a hardened program who allocated it."""

    def __init__(self):
        super().__init__("memoir block", gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)

    def invoke(self, argument, from_tty):
        if not argument:
            raise gdb.GdbError("usage: memoir block ADDRESS")
        layout = Layout()
        address = number(gdb.parse_and_eval(argument)) % (1 << 64)
        kind = layout.kind(address)
        first = number(gdb.parse_and_eval("&nursery_region"))
        if first <= address < first + constant("NURSERY_BYTES"):
            self.nursery(address, first)
        elif kind == constant("MAP_MACRO"):
            self.macro(layout, address)
        elif kind == constant("MAP_NONE"):
            print(f"{address:#x}: no memory of this heap, or inside a huge block; perhaps in a chain of the program's own")
        else:
            print(f"{address:#x}: a huge block, with a mapping of its own")

    def nursery(self, address, first):
        """One of the first blocks: bits tell where each starts, and whether it is in use."""
        region = gdb.parse_and_eval("nursery_region")
        now, near = region["now"], constant("NURSERY_NEAR")
        step, end = constant("NURSERY_STEP"), number(now["end"])

        def bit(field, place):
            word = place // 64
            bits = now["near"][word] if word < near else region["far"][word - near]
            return number(bits[field]) >> place % 64 & 1

        place = (address - first) // step
        start = place
        while start > 0 and not bit("starts", start):
            start -= 1
        if place >= end or start == 0:
            print(f"{address:#x}: memory of this heap, but no block")
            return
        after = start + 1
        while after < end and not bit("starts", after):
            after += 1
        print(f"{address:#x}: {address - first - start * step} bytes into a block of {(after - start) * step} bytes at "
              f"{first + start * step:#x}: {'used' if bit('live', start) else 'free'}; one of the first ones")

    def macro(self, layout, address):
        macro = gdb.Value(address & ~(layout.macro_bytes - 1)).cast(gdb.lookup_type("struct macro").pointer())
        for i, slab in layout.slabs(macro):
            memory = layout.memory(macro, i)
            if memory <= address < memory + number(slab["slices"]) * layout.slice_bytes:
                kind = number(slab["class"])
                if kind == layout.large:
                    start = memory + number(slab["start"])
                    print(f"{address:#x}: {address - start} bytes into a large block of {number(slab['asked'])} bytes at {start:#x}")
                    return
                if kind != layout.unused:
                    self.small(layout, address, slab, memory)
                    return
        print(f"{address:#x}: memory of this heap, but no block")

    def small(self, layout, address, slab, memory):
        size = number(slab["block_bytes"])
        index = (address - memory) // size
        start = memory + index * size
        own, others = layout.free_blocks(slab, memory)
        state, _, _ = layout.remote(slab)
        told = "used"
        if index >= number(slab["made"]):
            told = "never given out"
        elif start in own:
            told = "free"
        elif start in others:
            told = "free, by another thread"
        print(f"{address:#x}: {address - start} bytes into a block of {size} bytes at {start:#x}: {told}; "
              f"slab {number(slab.address):#x}, {STATES.get(state, '?')}")
        if constant("hard_level"):
            self.record(layout, start + size)

    def record(self, layout, end):
        at = (end - layout.record.sizeof) & ~7
        record = gdb.Value(at).cast(layout.record.pointer()).dereference()
        print(f"  {number(record['bytes'])} bytes asked")
        for title, field in (("allocated by", "alloc_stack"), ("freed by", "free_stack")):
            stack, table = number(record[field]), gdb.parse_and_eval("'depot.c'::table")
            if 0 < stack <= constant("DEPOT_STACKS") and number(table):
                print(f"  {title}:")
                for i in range(number(table[stack - 1]["n"])):
                    pc = number(table[stack - 1]["pcs"][i]) - 1
                    line = gdb.find_pc_line(pc)
                    block = gdb.block_for_pc(pc)
                    while block and not block.function:
                        block = block.superblock
                    where = f"{line.symtab.filename}:{line.line}" if line.symtab else ""
                    print(f"    {pc:#x} {block.function if block else ''} {where}".rstrip())


Memoir()
Heap()
Block()
