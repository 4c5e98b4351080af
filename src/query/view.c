/* See view.h. */
#include "query/view.h"

#include <string.h>

#include "base/buffer.h"
#include "query/query.h"

static const struct query_view views[] = {
    {"ps", "ps", "Processes that keep a book, with what they hold", NULL, "processes",
     .show = "pid,user,program,age,device,heap,pinned,other,peak,blocks,rss,state,notes,uid,"
             "book_pid,start,threads,losses,book_size,command,watchers"},
    {"top", "processes", "Every process of the machine", "The table host.", "host",
     .show =
         "pid,parent,program,user,state,start,rss,tree,pss,pss_age,anon,file,shmem,swap,peak_rss,growth,"
         "heap,pinned,device,threads,cgroup,job,container,tracked,command"},
    {NULL, "system", "Who holds the machine's memory", "One row.", "system",
     .show =
         "node,total,available,used,anon,shmem,cache,buffers,slab_reclaimable,slab_unreclaimable,"
         "page_tables,kernel_stacks,percpu,hugetlb,free,unattributed,dirty,swap_total,swap_free,"
         "pressure,pressure_1m,pressure_5m,stall,stall_1m,stall_5m"},
    {NULL, "cgroups", "Containers: cgroups with what they take and may take",
     "Parents come before their children.", "cgroups"},
    {"devices", "devices", "Devices and their kinds of memory", NULL, "devices",
     .show =
         "device,device_id,ordinal,device_name,device_kind,device_uid,device_bus,space,used,free,capacity,percent,confirmed,disputed,"
         "blocks,processes,driver.used,driver.reserved,driver.processes,unattributed"},
    {NULL, "device_processes", "Processes on devices as the driver counts them",
     "Of NVIDIA devices; also those that keep no book.", "device_processes",
     .show =
         "device,device_id,device_uid,pid,driver_pid,program,user,use,driver,accounted,unattributed"},
    {NULL, "accounts", "What each process holds, by device and kind of memory", NULL, "accounts",
     .show =
         "pid,user,program,device,device_id,ordinal,device_name,device_uid,device_bus,space,bytes,blocks,peak,"
         "capacity,percent,allocated,freed,allocated_blocks,freed_blocks,moved_in,moved_out,inherited,source"},
    {"buffers", "buffers", "Single blocks that are allocated and not freed",
     "Of your own processes; root sees all.", "buffers",
     .show =
         "pid,user,program,device,device_id,ordinal,device_name,device_uid,space,bytes,age,tag,moves,id,site,"
         "function,source_file,line,frame"},
    {NULL, "sites", "Call sites of all processes, without names of functions",
     "Of your own processes; root sees all.", "sites"},
    {"sites", "lines", "Lines of programs that hold memory, without names of functions",
     "Of your own processes; root sees all. /processes/{pid}/sites has names.", "lines",
     .show =
         "pid,program,device,device_id,ordinal,device_name,device_uid,space,bytes,blocks,allocated,allocated_blocks,"
         "age,first_seen,call_sites,site,via,function,source_file,line,module,frame,key,estimated"},
    {"flame", "stacks", "Stacks of calls that lead to memory, without names of functions",
     "Of your own processes; root sees all. /processes/{pid}/stacks has names.", "stacks",
     .show =
         "pid,program,device,space,bytes,blocks,allocated,freed,allocated_blocks,freed_blocks,estimated,key,frames"},
    {"leaks", "leaks", "Call sites that may leak, with the evidence",
     "Of your own processes; root sees all.", "leaks",
     .show =
         "verdict,confidence,reason,growth,growth_blocks,bytes,blocks,freed_share,watched,watcher,growing,"
         "limit_in,limit_kind,limit,pid,program,user,device,ordinal,device_name,device_uid,space,"
         "site,via,function,source_file,line,frame,key,stack,stack_samples,samples,trend,examples,why"},
    {"exited", "exited", "Processes that ended: when, how, and what they still held", NULL,
     "exited",
     .show =
         "ended,start,lived,program,user,uid,pid,parent,cause,kind,exit_code,signal,core,peak_rss,cpu,heap,"
         "pinned,device,blocks,cgroup,has_book,sequence"},
    {NULL, "exited_blocks", "Blocks that processes still held when they ended, the largest of each",
     "Of your own processes; root sees all.", "exited_blocks",
     .show = "pid,user,program,ended,cause,device,ordinal,device_name,device_uid,space,bytes,age,"
             "tag,site,id,moves,function,source_file,line,frame"},
    {NULL, "events", "What happened lately, the latest first",
     "where=seq>N asks for what came after an event; the stream has them as they happen.", "events",
     .show = "seq,time,kind,pid,program,user,uid,bytes,message", .sort = "-seq"},
    {0},
};

const struct query_view *query_views(void)
{
    return views;
}

const struct query_view *query_view_find(const char *name)
{
    for (const struct query_view *v = views; v->name || v->route; v++)
        if (v->name && strcmp(v->name, name) == 0)
            return v;
    return NULL;
}

const struct query_view *query_view_route(const char *route)
{
    for (const struct query_view *v = views; v->name || v->route; v++)
        if (v->route && strcmp(v->route, route) == 0)
            return v;
    return NULL;
}

static const char *given(const char *text)
{
    return text && *text ? text : NULL;
}

int query_view_spec(const struct query_view *view, const struct query_spec *asked,
                    struct buffer *where, struct query_spec *ret_spec)
{
    struct query_spec spec = *asked;
    spec.table = view->table;
    if (!given(spec.show) && !given(spec.by))
        spec.show = view->show;
    if (!given(spec.sort) && !given(spec.by))
        spec.sort = view->sort;
    if (!given(spec.where)) {
        spec.where = view->where;
    } else if (view->where) {
        buffer_printf(where, "(%s) and (%s)", view->where, spec.where);
        spec.where = buffer_string(where);
    }
    *ret_spec = spec;
    return where->error;
}

void query_where_text(struct buffer *where, const char *column, const char *op, const char *value)
{
    buffer_printf(where, "%s%s%s\"", where->len ? " and " : "", column, op);
    for (; *value; value++) {
        if (*value == '"' || *value == '\\')
            buffer_append_char(where, '\\');
        buffer_append_char(where, *value);
    }
    buffer_append_char(where, '"');
}
