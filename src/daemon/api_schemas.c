/* What the answers of the HTTP API look like: JSON Schemas (2020-12), which become part of its OpenAPI description.
 * test/integration/test_api.py holds every answer against them. */
#include "daemon/api.h"
#include "http/http.h"

/* JSON as it stands, as a string. */
#define JSON(...) #__VA_ARGS__

/* It is JSON, which the formatter does not know. */
/* clang-format off */
static const struct http_schema schemas[] = {
{"Table", JSON({
    "type": "object",
    "description": "Rows of a table, as memoir query --json has them. What is not known is null, never 0.",
    "required": ["schema", "time", "table", "columns", "rows", "matched"],
    "properties": {
        "schema": {"type": "string", "const": "memoir.query/1"},
        "time": {"$ref": "#/components/schemas/Time"},
        "table": {"type": "string"},
        "columns": {"type": "array", "items": {
            "type": "object",
            "required": ["name", "kind", "unit"],
            "properties": {"name": {"type": "string"}, "kind": {"$ref": "#/components/schemas/Kind"},
                           "unit": {"type": "string", "description": "of the values; empty where there is none"}}}},
        "rows": {
            "description": "Objects by column; with shape=arrays, arrays in the order of the columns.",
            "type": "array", "items": {"type": ["object", "array"]}},
        "matched": {"type": "integer", "minimum": 0, "description": "rows before the limit"},
        "left_out": {"type": "integer", "minimum": 0, "description": "rows past what an answer holds"},
        "incomplete": {"type": "boolean", "description": "something could not be read in time"},
        "at_least": {"$ref": "#/components/schemas/Cells"},
        "estimate": {"$ref": "#/components/schemas/Cells"},
        "exits": {"type": "object", "description": "of the table exited: whether ends of processes are seen"},
        "watch": {
            "type": "object", "description": "of the view leaks: how long call sites were watched, in seconds",
            "required": ["ready", "watched", "needs", "books", "sites", "left_out", "looks", "stopped"],
            "properties": {
                "books": {"type": "integer", "description": "that were looked at"},
                "stopped": {"type": "array", "description": "leaks found since memoird started that no longer grow, the latest first", "items": {
                    "type": "object",
                    "required": ["pid", "program", "frame", "found", "last", "bytes", "ended"],
                    "properties": {
                        "pid": {"type": "integer"},
                        "program": {"type": "string"},
                        "frame": {"type": ["string", "null"], "description": "file and offset of the place in the code"},
                        "found": {"$ref": "#/components/schemas/Time"},
                        "last": {"$ref": "#/components/schemas/Time"},
                        "bytes": {"type": "integer", "description": "that it held last"},
                        "ended": {"type": "boolean", "description": "its process ended, or called exec"}}}},
                "ready": {"type": "boolean", "description": "watched for long enough for verdicts"},
                "watched": {"type": "number"}, "needs": {"type": "number"}, "sites": {"type": "integer"},
                "left_out": {"type": "integer"}, "looks": {"type": "integer"}}},
        "cluster": {"$ref": "#/components/schemas/Gathered"}
    }})},
{"Gathered", JSON({
    "type": "object",
    "description": "of answers of several nodes: who answered. A node that is missing is not part of any figure.",
    "required": ["expected", "answered", "missing", "lacking", "clocks", "took"],
    "properties": {
        "expected": {"type": "integer", "minimum": 0, "description": "nodes that should have answered"},
        "answered": {"type": "integer", "minimum": 0},
        "missing": {"type": "array", "items": {
            "type": "object",
            "required": ["node", "id", "refused", "why"],
            "properties": {
                "node": {"type": "string"},
                "id": {"type": "string"},
                "refused": {"type": "boolean", "description": "it answered that it may not, or cannot"},
                "why": {"type": "string"}}}},
        "lacking": {
            "description": "nodes of another version, and the columns that they do not have",
            "type": "array", "items": {
                "type": "object",
                "required": ["node", "version", "columns"],
                "properties": {
                    "node": {"type": "string"},
                    "version": {"type": "string"},
                    "columns": {"type": "array", "items": {"type": "string"}}}}},
        "clocks": {
            "description": "nodes whose clock differs from ours by a second or more",
            "type": "array", "items": {
                "type": "object",
                "required": ["node", "clock_offset"],
                "properties": {"node": {"type": "string"}, "clock_offset": {"type": "number"}}}},
        "took": {"type": "number", "minimum": 0}
    }})},
{"Cluster", JSON({
    "type": "object",
    "required": ["schema", "time", "state", "members"],
    "properties": {
        "schema": {"type": "string", "const": "memoir.cluster/2"},
        "time": {"$ref": "#/components/schemas/Time"},
        "state": {"enum": ["none", "connecting", "connected", "closed"],
                  "description": "of the connection to the NATS server; none: this memoird is in no cluster"},
        "problem": {"type": ["string", "null"]},
        "server": {"type": ["string", "null"]},
        "self": {"type": "string", "description": "ID of this node"},
        "name": {"type": "string"},
        "key": {"type": ["string", "null"], "description": "public key by which this node signs what it asks for its users"},
        "figures": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}},
        "members": {"type": "array", "items": {"$ref": "#/components/schemas/ClusterMember"}}
    }})},
{"ClusterPrograms", JSON({
    "type": "object",
    "required": ["schema", "time", "measure", "programs", "programs_total", "cluster"],
    "properties": {
        "schema": {"type": "string", "const": "memoir.cluster-programs/1"},
        "time": {"$ref": "#/components/schemas/Time"},
        "measure": {"type": "string"},
        "programs_total": {"type": "integer", "minimum": 0},
        "programs": {"type": "array", "items": {"$ref": "#/components/schemas/ClusterProgram"}},
        "cluster": {"$ref": "#/components/schemas/Gathered"}
    }})},
{"ClusterProgram", JSON({
    "type": "object",
    "required": ["program", "value", "processes", "growth", "nodes_total", "outliers", "nodes"],
    "properties": {
        "program": {"type": "string"},
        "value": {"type": "integer", "minimum": 0, "description": "of the measure, on all nodes that know it"},
        "processes": {"type": "integer", "minimum": 0},
        "growth": {"type": ["number", "null"], "description": "bytes a second, over the last 10 seconds"},
        "nodes_total": {"type": "integer", "minimum": 0},
        "outliers": {"type": "integer", "minimum": 0},
        "nodes": {"type": "array", "items": {
            "type": "object",
            "required": ["node", "value", "processes", "growth", "growth_steady", "outlier", "why"],
            "properties": {
                "node": {"type": "string"},
                "value": {"type": "integer", "minimum": 0},
                "processes": {"type": "integer", "minimum": 0},
                "growth": {"type": ["number", "null"]},
                "growth_steady": {"type": ["number", "null"],
                                  "description": "the least in any third of the last 30 seconds; null: not watched for so long"},
                "outlier": {"type": ["string", "null"], "description": "grows, more or less; null: it is none"},
                "why": {"type": ["string", "null"], "description": "for people"}}}}
    }})},
{"ClusterMember", JSON({
    "type": "object",
    "required": ["node", "name", "id", "self", "state", "state_age", "version", "started", "heard_age", "answered_age",
                 "answer_took", "answers", "missed", "rejected", "clock_offset"],
    "properties": {
        "node": {"type": "string", "description": "name, made unique: for node= and in the column node"},
        "name": {"type": "string"},
        "id": {"type": "string"},
        "self": {"type": "boolean"},
        "state": {"enum": ["alive", "unreachable", "left"]},
        "state_age": {"type": "number", "minimum": 0, "description": "for how long"},
        "version": {"type": "string"},
        "started": {"$ref": "#/components/schemas/Time"},
        "heard_age": {"type": "number", "minimum": 0, "description": "since its last heartbeat"},
        "answered_age": {"type": ["number", "null"], "description": "since its last answer"},
        "answer_took": {"type": ["number", "null"], "description": "that its last answer took"},
        "answers": {"type": "integer", "minimum": 0},
        "missed": {"type": "integer", "minimum": 0, "description": "questions without an answer in time"},
        "rejected": {"type": "integer", "minimum": 0, "description": "answers that were invalid"},
        "clock_offset": {"type": "number", "description": "its clock less ours"}
    }})},
{"Time", JSON({"type": "string", "format": "date-time", "description": "ISO 8601, UTC"})},
{"Kind", JSON({
    "type": "string",
    "enum": ["text", "number", "bytes", "age", "time", "percent", "share", "yes", "rate", "points", "frames"],
    "description": "bytes and numbers are integers, rates numbers with a sign, ages seconds, times ISO 8601, percentages numbers, shares fractions from 0 to 1, yes booleans; points are arrays of [seconds since 1970, value], frames arrays of texts, the outermost first"})},
{"Cells", JSON({
    "type": "array",
    "description": "with shape=arrays: [row, column] of the cells that carry this mark",
    "items": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 2, "maxItems": 2}})},
{"Tables", JSON({
    "type": "object",
    "required": ["tables"],
    "properties": {"tables": {"type": "array", "items": {
        "type": "object",
        "required": ["name", "help", "show", "sort", "private", "columns"],
        "properties": {
            "name": {"type": "string"},
            "help": {"type": "string"},
            "show": {"type": "string", "description": "usual columns"},
            "sort": {"type": ["string", "null"], "description": "usual order"},
            "private": {"type": "boolean", "description": "rows of other users are left out"},
            "columns": {"type": "array", "items": {
                "type": "object",
                "required": ["name", "kind", "unit", "help", "private", "cost"],
                "properties": {
                    "name": {"type": "string"},
                    "kind": {"$ref": "#/components/schemas/Kind"},
                    "help": {"type": "string"},
                    "private": {"type": "boolean", "description": "known of your own processes only"},
                    "unit": {"type": "string"},
                    "cost": {"type": "string", "enum": ["none", "probe", "detail"]}}}}}}}}})},
{"Process", JSON({
    "type": "object",
    "required": ["schema", "time", "pid", "process", "accounts", "own", "tracking", "limit"],
    "properties": {
        "schema": {"type": "string", "const": "memoir.process/1"},
        "time": {"$ref": "#/components/schemas/Time"},
        "pid": {"type": "integer"},
        "process": {"type": ["object", "null"], "description": "all columns of the table host; null when it is gone and only its book is left"},
        "accounts": {"type": "array", "items": {"type": "object"}, "description": "what it holds, by device and space"},
        "own": {"type": "boolean", "description": "you may see its call sites, blocks and command"},
        "tracking": {
            "type": "object",
            "required": ["state", "source", "why", "can", "attach", "command"],
            "properties": {
                "state": {"type": "string", "enum": ["on", "suspended", "off", "none"]},
                "source": {"type": ["string", "null"], "description": "who counts: track, attach, client, socket ..."},
                "why": {"type": ["string", "null"], "description": "why it is not tracked"},
                "can": {"type": "boolean", "description": "you may switch it"},
                "attach": {"type": "boolean", "description": "switching it on puts probes on its allocator while it runs"},
                "as_of": {"type": ["string", "null"], "description": "where probes are in for part of the time: when the figures changed last"},
                "command": {"type": ["string", "null"], "description": "what would start it tracked"}}},
        "limit": {
            "type": ["object", "null"],
            "description": "the limit of its cgroup or of one around it that leaves the least",
            "required": ["bytes", "headroom", "where"],
            "properties": {
                "bytes": {"type": "integer"}, "headroom": {"type": "integer"}, "where": {"type": "string"}}}
    }})},
{"Tracing", JSON({
    "type": "object",
    "required": ["pid", "state"],
    "properties": {
        "pid": {"type": "integer"},
        "state": {"type": "string", "enum": ["on", "off"]}}})},
{"ScanSum", JSON({
    "type": "object",
    "required": ["blocks", "bytes"],
    "properties": {"blocks": {"type": "integer"}, "bytes": {"type": "integer"}}})},
{"Scan", JSON({
    "type": "object",
    "required": ["schema", "time", "pid", "program", "proof", "unread_bytes", "stood_still", "lost", "indirectly_lost", "reachable", "inherited_lost", "sites_more", "sites"],
    "properties": {
        "schema": {"type": "string", "const": "memoir.scan/1"},
        "time": {"$ref": "#/components/schemas/Time"},
        "pid": {"type": "integer"},
        "program": {"type": "string"},
        "proof": {"type": "boolean", "description": "all of its memory was read: what is called lost is lost"},
        "unread_bytes": {"type": "integer"},
        "stood_still": {"type": "number"},
        "lost": {"$ref": "#/components/schemas/ScanSum"},
        "indirectly_lost": {"$ref": "#/components/schemas/ScanSum"},
        "reachable": {"$ref": "#/components/schemas/ScanSum"},
        "inherited_lost": {"$ref": "#/components/schemas/ScanSum"},
        "sites_more": {"type": "integer", "description": "sites that are not in the list"},
        "sites": {"type": "array", "items": {
            "type": "object",
            "required": ["state", "blocks", "bytes", "oldest", "site", "frame", "function", "file"],
            "properties": {
                "state": {"type": "string", "enum": ["lost", "indirectly lost"]},
                "blocks": {"type": "integer"},
                "bytes": {"type": "integer"},
                "oldest": {"type": "integer"},
                "site": {"type": ["string", "null"]},
                "via": {"type": ["string", "null"]},
                "frame": {"type": ["string", "null"]},
                "function": {"type": ["string", "null"]},
                "file": {"type": ["string", "null"]}}}}}})},
{"TrackingWish", JSON({
    "type": "object",
    "required": ["on"],
    "additionalProperties": false,
    "properties": {
        "on": {"type": "boolean"},
        "children": {"type": "boolean", "description": "of a process that is attached: those that it forks, too"}}})},
{"TracingWish", JSON({
    "type": "object",
    "required": ["on"],
    "additionalProperties": false,
    "properties": {"on": {"type": "boolean"}}})},
{"Tracking", JSON({
    "type": "object",
    "required": ["pid", "state", "changed"],
    "properties": {
        "pid": {"type": "integer"},
        "state": {"type": "string", "enum": ["on", "suspended", "off", "none"]},
        "changed": {"type": "boolean"}}})},
{"Flame", JSON({
    "type": "object",
    "required": ["schema", "time", "pid", "program", "values", "names", "modules", "keys", "nodes", "estimate", "left_out"],
    "properties": {
        "schema": {"type": "string", "const": "memoir.flame/1"},
        "time": {"$ref": "#/components/schemas/Time"},
        "pid": {"type": "integer"},
        "program": {"type": "string"},
        "at_peak": {"type": "boolean", "description": "live figures are those at the peak of each account, not those of now"},
        "values": {"type": "array", "items": {"type": "string"}, "description": "what the figures of a node are"},
        "names": {"type": "array", "items": {"type": "string"}, "description": "functions, in short"},
        "functions": {"type": "array", "items": {"type": ["string", "null"]}, "description": "the whole name of each; null where it is no longer"},
        "modules": {"type": "array", "items": {"type": ["string", "null"]}, "description": "of each name: path of its file"},
        "keys": {"type": "array", "items": {"type": "string"}, "description": "of each name: the same at every moment and in every run"},
        "nodes": {
            "type": "array",
            "description": "[parent, name, figures...]: node 0 is the root, whose parent is -1; parents come first; figures are with all that is below",
            "items": {"type": "array", "items": {"type": "integer"}, "minItems": 6, "maxItems": 6}},
        "estimate": {"type": "array", "items": {"type": "integer"}, "description": "nodes whose figures are estimates"},
        "left_out": {"type": "integer", "description": "nodes too small to be told of"},
        "books": {"type": "integer"},
        "books_unread": {"type": "integer"},
        "sites_full": {"type": "integer"}}})},
{"Ages", JSON({
    "type": "object",
    "description": "Live blocks by age and size.",
    "required": ["schema", "time", "pid", "program", "source", "complete", "ages", "sizes", "blocks", "bytes", "live_blocks", "live_bytes"],
    "properties": {
        "schema": {"type": "string", "const": "memoir.ages/1"},
        "time": {"$ref": "#/components/schemas/Time"},
        "pid": {"type": "integer"},
        "program": {"type": "string"},
        "source": {"type": "string", "enum": ["heap", "device"]},
        "complete": {"type": "boolean", "description": "false: more memory than could be searched in time"},
        "searched_bytes": {"type": "integer"},
        "ages": {"type": "array", "items": {"type": "integer"}, "description": "where each row begins, in seconds"},
        "sizes": {"type": "array", "items": {"type": "integer"}, "description": "where each column begins, in bytes"},
        "blocks": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        "bytes": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        "live_blocks": {"type": "integer"},
        "live_bytes": {"type": "integer"}}})},
{"Explain", JSON({
    "type": "object",
    "description": "The parts sum to rss_bytes.",
    "required": ["schema", "time", "program", "pid", "rss_bytes", "swap_bytes", "hugetlb_bytes", "mappings", "threads", "memory_read", "live_bytes", "live_absent_bytes", "kinds", "parts", "sites"],
    "properties": {
        "schema": {"type": "string", "const": "memoir.explain/1"},
        "time": {"$ref": "#/components/schemas/Time"},
        "program": {"type": ["string", "null"]},
        "pid": {"type": "integer"},
        "rss_bytes": {"type": "integer"},
        "swap_bytes": {"type": "integer", "description": "not in the sum"},
        "hugetlb_bytes": {"type": "integer", "description": "not in the sum"},
        "mappings": {"type": "integer"},
        "threads": {"type": "integer"},
        "memory_read": {"type": "boolean", "description": "false: owners are told by size and alignment of mappings only"},
        "live_bytes": {"type": ["integer", "null"], "description": "in use on the heap by the book; null without one"},
        "live_absent_bytes": {"type": ["integer", "null"], "description": "of these, not resident: outside the sum"},
        "kinds": {"type": "object", "description": "bytes by kind", "additionalProperties": {"type": "integer"}},
        "parts": {"type": "array", "items": {"$ref": "#/components/schemas/ExplainPart"}},
        "sites": {"type": ["array", "null"], "items": {"$ref": "#/components/schemas/ExplainSite"}},
        "other_sites": {"type": "integer"},
        "other_sites_bytes": {"type": "integer"}}})},
{"ExplainPart", JSON({
    "type": "object",
    "required": ["kind", "name", "bytes", "private_bytes", "huge_bytes", "swap_bytes", "mappings", "folded", "estimate", "by_shape"],
    "properties": {
        "kind": {"type": "string", "enum": ["heap", "slack", "older", "runtime", "anonymous", "stack", "file", "shared", "device", "memoir", "rest"]},
        "name": {"type": "string"},
        "bytes": {"type": "integer"},
        "private_bytes": {"type": "integer"},
        "huge_bytes": {"type": "integer"},
        "swap_bytes": {"type": "integer"},
        "mappings": {"type": "integer"},
        "folded": {"type": "integer", "description": "names that are summed up here; 0: it is one"},
        "estimate": {"type": "boolean"},
        "by_shape": {"type": "boolean"}}})},
{"ExplainSite", JSON({
    "type": "object",
    "required": ["site", "bytes", "live_bytes", "live_blocks"],
    "properties": {
        "site": {"type": "string"},
        "via": {"type": ["string", "null"]},
        "bytes": {"type": "integer", "description": "resident, an estimate"},
        "live_bytes": {"type": "integer"},
        "live_blocks": {"type": "integer"}}})},
{"Flow", JSON({
    "type": "object",
    "required": ["copies", "bytes"],
    "properties": {"copies": {"type": "integer"}, "bytes": {"type": "integer"}}})},
{"Flows", JSON({
    "type": "object",
    "description": "copies by direction",
    "required": ["unknown", "to_device", "from_device", "on_device", "on_host"],
    "properties": {
        "unknown": {"$ref": "#/components/schemas/Flow"},
        "to_device": {"$ref": "#/components/schemas/Flow"},
        "from_device": {"$ref": "#/components/schemas/Flow"},
        "on_device": {"$ref": "#/components/schemas/Flow"},
        "on_host": {"$ref": "#/components/schemas/Flow"}}})},
{"Traced", JSON({
    "type": "object",
    "required": ["schema", "time", "state", "problem", "processes"],
    "properties": {
        "schema": {"type": "string", "const": "memoir.traced/1"},
        "time": {"$ref": "#/components/schemas/Time"},
        "state": {"type": "string", "enum": ["off", "waiting", "starting", "running", "failed"]},
        "problem": {"type": "string", "description": "why nothing is traced; empty while it is"},
        "processes": {"type": "array", "items": {"$ref": "#/components/schemas/TracedProcess"}}}})},
{"TracedProcess", JSON({
    "type": "object",
    "required": ["pid", "uid", "program", "off", "calls", "live_blocks", "spaces", "copies", "lost"],
    "properties": {
        "pid": {"type": "integer"},
        "uid": {"type": "integer"},
        "program": {"type": "string"},
        "off": {"type": "boolean", "description": "its tracing is switched off: no figure of it is kept"},
        "calls": {"type": "integer", "description": "calls of the driver that were seen"},
        "live_blocks": {"type": "integer"},
        "spaces": {
            "type": "object",
            "description": "exact, by space: dram, managed, pinned, registered",
            "additionalProperties": {
                "type": "object",
                "required": ["live_bytes", "live_blocks", "allocated_bytes", "allocated_blocks"],
                "properties": {
                    "live_bytes": {"type": "integer"}, "live_blocks": {"type": "integer"},
                    "allocated_bytes": {"type": "integer"}, "allocated_blocks": {"type": "integer"}}}},
        "copies": {"$ref": "#/components/schemas/Flows"},
        "lost": {"type": "object", "additionalProperties": {"type": "integer"}}}})},
{"Pinning", JSON({
    "type": "object",
    "description": "What libmemoir-cuda pinned in a process, and why. Allocations and sites are those whose copies took most time; 200 of each at most.",
    "required": ["schema", "time", "pid", "mode", "pinned_bytes", "pinned_peak_bytes", "own_pinned_bytes", "live_bytes", "kernel_pinned_bytes", "budget_bytes", "saved", "missed", "cost", "staged_copies", "staged_bytes", "staged_saved", "touched_ahead_bytes", "failures", "not_shown_blocks", "calibrated", "allocations", "sites"],
    "properties": {
        "schema": {"type": "string", "const": "memoir.pinning/2"},
        "time": {"$ref": "#/components/schemas/Time"},
        "pid": {"type": "integer"},
        "mode": {"type": "string", "enum": ["auto", "use", "profile", "shadow", "off"]},
        "pinned_bytes": {"type": "integer", "description": "registered by the library"},
        "pinned_peak_bytes": {"type": "integer"},
        "own_pinned_bytes": {"type": "integer", "description": "pinned by the program itself"},
        "live_bytes": {"type": "integer", "description": "of allocations that the library serves"},
        "kernel_pinned_bytes": {"type": ["integer", "null"], "description": "of the whole machine, by the kernel's counters; null: it has none"},
        "budget_bytes": {"type": ["integer", "null"], "description": "null: unlimited"},
        "saved": {"type": "number"},
        "missed": {"type": "number"},
        "cost": {"type": "number"},
        "staged_copies": {"type": "integer", "description": "copies of memory that is not pinned, through the staging ring"},
        "staged_bytes": {"type": "integer"},
        "staged_saved": {"type": "number", "description": "what these took less than the driver's own"},
        "touched_ahead_bytes": {"type": "integer", "description": "fresh memory that was touched ahead of the program"},
        "failures": {"type": "integer"},
        "not_shown_blocks": {"type": "integer"},
        "calibrated": {"type": "boolean"},
        "allocations": {"type": "array", "items": {
            "type": "object",
            "required": ["address", "pinned", "bytes", "copies", "missed", "saved", "cost", "reason", "why", "site"],
            "properties": {
                "address": {"type": "string"},
                "pinned": {"type": "boolean"},
                "bytes": {"type": "integer"},
                "copies": {"type": "integer"},
                "missed": {"type": "number"},
                "saved": {"type": "number"},
                "cost": {"type": "number"},
                "reason": {"type": "string"},
                "why": {"type": "string"},
                "site": {"type": "string"}}}},
        "sites": {"type": "array", "items": {
            "type": "object",
            "required": ["site", "key", "allocations", "advice", "saves_each", "bytes", "copies", "missed", "saved", "pinned_bytes"],
            "properties": {
                "site": {"type": "string"},
                "key": {"type": "string"},
                "allocations": {"type": "integer"},
                "advice": {"type": "string", "enum": ["pin", "reuse", "leave"], "description": "pin: each allocation is worth its memory; reuse: all together are worth that of one; leave: neither"},
                "saves_each": {"type": "number", "description": "what pinning saves for one allocation"},
                "bytes": {"type": "integer", "description": "of the average allocation"},
                "copies": {"type": "integer"},
                "missed": {"type": "number"},
                "saved": {"type": "number"},
                "pinned_bytes": {"type": "integer"}}}}}})},
{"Trace", JSON({
    "type": "object",
    "description": "What a traced process did with CUDA memory. Times are seconds since 1970; sites are numbers of the list sites.",
    "required": ["schema", "time", "pid", "program", "traced_since", "by", "totals", "losses", "hot", "cold", "copiers", "assumed", "repeats", "never_copied", "failures", "gaps", "timeline", "owners", "sites"],
    "properties": {
        "schema": {"type": "string", "const": "memoir.trace/1"},
        "time": {"$ref": "#/components/schemas/Time"},
        "pid": {"type": "integer"},
        "program": {"type": "string"},
        "traced_since": {"$ref": "#/components/schemas/Time"},
        "by": {"type": "string", "enum": ["bytes", "count"]},
        "totals": {"$ref": "#/components/schemas/TraceTotals"},
        "losses": {"type": "object", "additionalProperties": {"type": "integer"}},
        "hot": {"type": "array", "items": {"$ref": "#/components/schemas/TraceBlock"}, "description": "copied most, live or not"},
        "cold": {"type": "array", "items": {"$ref": "#/components/schemas/TraceBlock"}, "description": "live and copied least"},
        "copiers": {"type": "array", "items": {"$ref": "#/components/schemas/TraceCopier"}, "description": "lines that moved most over the bus"},
        "assumed": {
            "type": "object",
            "description": "rates behind the estimated savings",
            "required": ["pageable_rate", "pinned_rate"],
            "properties": {"pageable_rate": {"type": "integer"}, "pinned_rate": {"type": "integer"}}},
        "repeats": {"type": "array", "description": "ranges that were copied again and again in one direction", "items": {
            "type": "object",
            "required": ["address", "site", "space", "copy_site", "offset", "size", "direction", "copies", "bytes"],
            "properties": {
                "address": {"type": "string"},
                "site": {"type": ["integer", "null"]}, "space": {"type": ["string", "null"]},
                "copy_site": {"type": ["integer", "null"]},
                "offset": {"type": "integer"}, "size": {"type": "integer"},
                "direction": {"type": "string", "enum": ["unknown", "to_device", "from_device", "on_device", "on_host"]},
                "copies": {"type": "integer"},
                "bytes": {"type": "integer", "description": "that all copies but the first moved"}}}},
        "never_copied": {"type": "array", "items": {
            "type": "object",
            "required": ["site", "space", "blocks", "bytes", "live_bytes"],
            "properties": {
                "site": {"type": ["integer", "null"]}, "space": {"type": ["string", "null"]},
                "blocks": {"type": "integer"}, "bytes": {"type": "integer"}, "live_bytes": {"type": "integer"}}}},
        "failures": {"type": "array", "items": {"$ref": "#/components/schemas/TraceFailure"}, "description": "newest first"},
        "gaps": {"type": "array", "items": {
            "type": "object",
            "required": ["t", "lost"],
            "properties": {"t": {"type": ["number", "null"]}, "lost": {"type": "integer", "description": "events"}}}},
        "timeline": {"$ref": "#/components/schemas/TraceTimeline"},
        "owners": {
            "type": ["object", "null"],
            "description": "who owns the device memory that the driver counts for the process, on all devices; null: the driver tells no figure",
            "required": ["driver_bytes", "rows"],
            "properties": {
                "driver_bytes": {"type": "integer"},
                "rows": {"type": "array", "description": "their bytes sum to driver_bytes", "items": {
                    "type": "object",
                    "required": ["kind", "bytes", "library", "line", "memory", "blocks", "estimate"],
                    "properties": {
                        "kind": {"type": "string", "description": "allocated, rounding, CUDA context, unknown ..."},
                        "bytes": {"type": "integer"},
                        "library": {"type": ["string", "null"]},
                        "line": {"type": ["string", "null"]},
                        "memory": {"type": ["string", "null"]},
                        "blocks": {"type": ["integer", "null"]},
                        "estimate": {"type": "boolean"}}}}}},
        "sites": {"type": "array", "items": {"$ref": "#/components/schemas/TraceSite"}}}})},
{"TraceTotals", JSON({
    "type": "object",
    "required": ["events", "live_blocks", "live_bytes", "peak_bytes", "device_bytes", "device_peak_bytes", "allocated_blocks", "allocated_bytes", "freed_blocks", "freed_bytes", "copies", "pageable", "pageable_saving", "repeated", "failures", "faults", "ended"],
    "properties": {
        "events": {"type": "integer"},
        "live_blocks": {"type": "integer"},
        "live_bytes": {"type": "integer"},
        "peak_bytes": {"type": "integer"},
        "device_bytes": {"type": "integer"},
        "device_peak_bytes": {"type": "integer"},
        "allocated_blocks": {"type": "integer"},
        "allocated_bytes": {"type": "integer"},
        "freed_blocks": {"type": "integer"},
        "freed_bytes": {"type": "integer"},
        "copies": {"$ref": "#/components/schemas/Flows"},
        "pageable": {"$ref": "#/components/schemas/Flow"},
        "pageable_saving": {"type": "number", "description": "estimate: time that pinned memory would save"},
        "repeated": {"$ref": "#/components/schemas/Flow"},
        "failures": {"type": "integer"},
        "faults": {"type": "integer", "description": "page faults"},
        "ended": {"type": ["number", "null"]}}})},
{"TraceBlock", JSON({
    "type": "object",
    "required": ["address", "size", "site", "space", "copy_site", "device", "state", "start", "end", "first_copy", "last_copy", "copies", "bytes", "to_device", "from_device", "pageable", "repeated", "faults", "faults_before_copy"],
    "properties": {
        "address": {"type": "string"},
        "size": {"type": "integer"},
        "site": {"type": ["integer", "null"], "description": "line that allocated it"},
        "space": {"type": ["string", "null"]},
        "copy_site": {"type": ["integer", "null"], "description": "line that copies it most"},
        "device": {"type": ["integer", "null"]},
        "state": {"type": "string", "enum": ["allocated", "recorded", "freed", "unknown"]},
        "start": {"type": ["number", "null"]},
        "end": {"type": ["number", "null"]},
        "first_copy": {"type": ["number", "null"]},
        "last_copy": {"type": ["number", "null"]},
        "copies": {"type": "integer", "description": "over the bus"},
        "bytes": {"type": "integer", "description": "over the bus"},
        "to_device": {"$ref": "#/components/schemas/Flow"},
        "from_device": {"$ref": "#/components/schemas/Flow"},
        "pageable": {"$ref": "#/components/schemas/Flow"},
        "repeated": {"$ref": "#/components/schemas/Flow"},
        "faults": {"type": "integer", "description": "page faults in it"},
        "faults_before_copy": {"type": "integer"}}})},
{"TraceCopier", JSON({
    "type": "object",
    "required": ["site", "unknown", "to_device", "from_device", "on_device", "on_host", "pageable", "async", "repeated", "saving"],
    "properties": {
        "site": {"type": ["integer", "null"]},
        "unknown": {"$ref": "#/components/schemas/Flow"},
        "to_device": {"$ref": "#/components/schemas/Flow"},
        "from_device": {"$ref": "#/components/schemas/Flow"},
        "on_device": {"$ref": "#/components/schemas/Flow"},
        "on_host": {"$ref": "#/components/schemas/Flow"},
        "pageable": {"$ref": "#/components/schemas/Flow"},
        "async": {"$ref": "#/components/schemas/Flow"},
        "repeated": {"$ref": "#/components/schemas/Flow"},
        "saving": {"type": "number", "description": "estimate: time that pinned memory would save"}}})},
{"TraceFailure", JSON({
    "type": "object",
    "required": ["t", "text", "size", "result", "out_of_memory", "times", "site", "space", "device", "held_bytes", "held_blocks", "capacity_bytes", "used_bytes", "holders", "others"],
    "properties": {
        "t": {"type": ["number", "null"]},
        "text": {"type": "string", "description": "one sentence: who asked, and who held what"},
        "size": {"type": "integer"},
        "result": {"type": "integer", "description": "the driver's error"},
        "out_of_memory": {"type": "boolean"},
        "times": {"type": "integer"},
        "site": {"type": ["integer", "null"]},
        "space": {"type": ["string", "null"]},
        "device": {"type": ["integer", "null"]},
        "held_bytes": {"type": "integer"},
        "held_blocks": {"type": "integer"},
        "capacity_bytes": {"type": "integer", "description": "of the device; 0: not known"},
        "used_bytes": {"type": "integer"},
        "holders": {"type": "array", "items": {
            "type": "object",
            "required": ["site", "space", "bytes", "blocks"],
            "properties": {
                "site": {"type": ["integer", "null"]}, "space": {"type": ["string", "null"]},
                "bytes": {"type": "integer"}, "blocks": {"type": "integer"}}}},
        "others": {"type": "array", "items": {
            "type": "object",
            "required": ["pid", "program", "bytes"],
            "properties": {"pid": {"type": "integer"}, "program": {"type": "string"}, "bytes": {"type": "integer"}}}}}})},
{"TraceTimeline", JSON({
    "type": "object",
    "required": ["start", "step", "now", "device_peak", "lines"],
    "properties": {
        "start": {"type": ["number", "null"]},
        "step": {"type": "number"},
        "now": {"type": ["number", "null"], "description": "when the trace was taken"},
        "device_peak": {"type": "array", "items": {"type": "integer"}, "description": "most device memory in each step"},
        "lines": {"type": "array", "items": {
            "type": "object",
            "required": ["group", "other", "site", "space", "device", "last"],
            "properties": {
                "group": {"type": "string", "enum": ["device", "host", "mixed"]},
                "other": {"type": "boolean", "description": "all further holders of the group"},
                "site": {"type": ["integer", "null"]},
                "space": {"type": ["string", "null"]},
                "device": {"type": ["integer", "null"]},
                "last": {"type": "array", "items": {"type": "integer"}, "description": "bytes held at the end of each step"}}}}}})},
{"TraceSite", JSON({
    "type": "object",
    "required": ["site", "text", "function", "file", "line", "module", "stack"],
    "properties": {
        "site": {"type": "integer"},
        "text": {"type": "string", "description": "the program's own line"},
        "function": {"type": ["string", "null"]},
        "file": {"type": ["string", "null"]},
        "line": {"type": ["integer", "null"]},
        "module": {"type": ["string", "null"]},
        "stack": {"type": "array", "items": {"type": "string"}, "description": "innermost first"}}})},
{"History", JSON({
    "type": "object",
    "required": ["schema", "time", "from", "to", "step", "t", "series"],
    "properties": {
        "schema": {"type": "string", "const": "memoir.history/2"},
        "time": {"$ref": "#/components/schemas/Time"},
        "from": {"type": "integer", "description": "seconds since 1970"},
        "to": {"type": "integer"},
        "step": {"type": "integer", "minimum": 1, "description": "seconds; a multiple of the steps in which the points are kept"},
        "t": {"type": "array", "items": {"type": "integer"}, "description": "start of each step, a multiple of step"},
        "series": {"type": "array", "items": {
            "type": "object",
            "required": ["name", "kind", "last", "max"],
            "properties": {
                "name": {"type": "string", "description": "rss, pss, heap, device.0.dram, total, used, pressure ..."},
                "kind": {"$ref": "#/components/schemas/Kind"},
                "pid": {"type": "integer", "description": "of memoir history --json, as user, program, processes and node"},
                "start": {"$ref": "#/components/schemas/Time"},
                "user": {"type": "string"},
                "uid": {"type": "integer"},
                "program": {"type": "string"},
                "processes": {"type": "integer"},
                "node": {"type": "string"},
                "ordinal": {"type": "integer"},
                "device_name": {"type": "string"},
                "device_id": {"type": "string", "description": "its identity, as the table devices has it"},
                "space": {"type": "string"},
                "capacity": {"type": "integer"},
                "last": {"type": "array", "items": {"type": ["number", "null"]}, "description": "at the end of each step; null: nothing was recorded in it"},
                "max": {"type": "array", "items": {"type": ["number", "null"]}, "description": "the largest in each step"}}}},
        "oldest": {"type": ["integer", "null"], "description": "of all that is kept"},
        "damaged": {"type": "integer"}}})},
{"Event", JSON({
    "type": "object",
    "description": "A row of the table events.",
    "required": ["seq", "time", "kind", "pid", "program", "user", "uid", "bytes", "message"],
    "properties": {
        "seq": {"type": "integer", "description": "only grows, also when memoird is started again"},
        "time": {"$ref": "#/components/schemas/Time"},
        "kind": {"type": "string", "enum": ["came", "went", "killed", "oom", "leak", "device", "tracking"]},
        "pid": {"type": ["integer", "null"]},
        "program": {"type": ["string", "null"]},
        "user": {"type": ["string", "null"]},
        "uid": {"type": ["integer", "null"]},
        "bytes": {"type": ["integer", "null"], "description": "that it held, or had at most"},
        "message": {"type": "string"}}})},
{"Tick", JSON({
    "type": "object",
    "description": "What an event tick of the stream has.",
    "required": ["time", "generation", "system", "devices", "growers", "processes", "tracked", "suspects"],
    "properties": {
        "time": {"$ref": "#/components/schemas/Time"},
        "generation": {"type": "integer"},
        "system": {"type": ["object", "null"], "description": "a row of the table system"},
        "devices": {"type": "array", "items": {"type": "object"}, "description": "rows of the table devices"},
        "growers": {"type": ["array", "null"], "description": "null: not known yet, growth is measured over 10 seconds", "items": {
            "type": "object",
            "description": "a row of the table host",
            "required": ["pid", "program", "growth", "rss"],
            "properties": {
                "pid": {"type": "integer"}, "program": {"type": "string"},
                "growth": {"type": "number", "description": "bytes a second"}, "rss": {"type": "integer"}}}},
        "processes": {"type": "integer"},
        "tracked": {"type": "integer"},
        "suspects": {"type": "integer", "description": "call sites that leak"}}})},
{"Figures", JSON({"type": "object", "additionalProperties": {"type": ["number", "boolean", "string", "object"]}})},
{"Self", JSON({
    "type": "object",
    "required": ["schema", "time", "version", "pid", "uid", "started", "uptime", "cpu", "rss", "threads", "descriptors", "loop", "books", "sockets", "history", "exits", "pressure", "leaks", "tracing", "http", "events"],
    "properties": {
        "schema": {"type": "string", "const": "memoir.self/1"},
        "time": {"$ref": "#/components/schemas/Time"},
        "version": {"type": "string"},
        "pid": {"type": "integer"},
        "uid": {"type": "integer"},
        "started": {"$ref": "#/components/schemas/Time"},
        "uptime": {"type": "number", "description": "seconds, as all durations"},
        "cpu": {"type": "object", "required": ["user", "system"], "properties": {"user": {"type": "number"}, "system": {"type": "number"}}},
        "rss": {"type": ["integer", "null"]},
        "peak_rss": {"type": "integer"},
        "threads": {"type": ["integer", "null"]},
        "descriptors": {"type": "integer"},
        "loop": {"$ref": "#/components/schemas/Figures"},
        "books": {"$ref": "#/components/schemas/Figures"},
        "sockets": {"$ref": "#/components/schemas/Figures"},
        "history": {"type": ["object", "null"]},
        "exits": {"$ref": "#/components/schemas/Figures"},
        "pressure": {"type": ["object", "null"], "description": "how scarce memory is, as it is published for allocators"},
        "leaks": {"$ref": "#/components/schemas/Figures"},
        "driver": {"type": ["object", "null"], "description": "how the NVIDIA driver's figures are read: version, problem (empty while NVML answers), readings, failures, and the processor time of a reading in nanoseconds"},
        "tracing": {
            "type": "object",
            "description": "whether CUDA programs are traced, and why not",
            "required": ["state", "problem"],
            "properties": {
                "state": {"type": "string", "enum": ["off", "waiting", "starting", "running", "failed"]},
                "problem": {"type": "string", "description": "empty where there is none"}}},
        "http": {"$ref": "#/components/schemas/Figures"},
        "events": {"$ref": "#/components/schemas/Figures"}}})},
{"Session", JSON({
    "type": "object",
    "required": ["user", "name", "uid", "role", "by", "sees_all", "node", "version", "tracking_possible"],
    "properties": {
        "user": {"type": ["string", "null"]},
        "name": {"type": "string", "description": "of the token, or of the user"},
        "uid": {"type": ["integer", "null"]},
        "role": {"type": "string", "enum": ["none", "read", "control"]},
        "by": {"type": "string", "enum": ["nobody", "peer", "token", "session"]},
        "sees_all": {"type": "boolean", "description": "call sites and commands of all users"},
        "node": {"type": "string"},
        "version": {"type": "string"},
        "tracking_possible": {"type": "boolean"}}})},
};
/* clang-format on */

const struct http_schema *api_schemas(size_t *ret_n)
{
    *ret_n = sizeof(schemas) / sizeof(*schemas);
    return schemas;
}
