/* The same lines as python_layouts.c prints, from CPython's own headers: compiled by the test with those that
 * are installed, not by meson. What a version does not have is not printed. */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>
#if PY_VERSION_HEX >= 0x030b0000
#include "internal/pycore_frame.h"
#else
#include <frameobject.h>
#endif
#include "internal/pycore_pystate.h"
#if PY_VERSION_HEX >= 0x03090000
#include "internal/pycore_runtime.h"
#endif

#define SAY(name, value)   printf("%x %s %d\n", PY_VERSION_HEX >> 16, name, (int)(value))
#define AT(name, s, field) SAY(name, offsetof(s, field))

static void say_thread(void)
{
    AT("thread_id", PyThreadState, thread_id);
    AT("tss_key", Py_tss_t, _key);
#if PY_VERSION_HEX < 0x030b0000
    SAY("runtime_bytes", sizeof(_PyRuntimeState));
    AT("thread_frame", PyThreadState, frame);
#else
    AT("thread_chunk", PyThreadState, datastack_chunk);
#endif
#if PY_VERSION_HEX < 0x03090000
    AT("runtime_finalizing", _PyRuntimeState, finalizing);
#else
    AT("runtime_finalizing", _PyRuntimeState, _finalizing);
#endif
#if PY_VERSION_HEX >= 0x030d0000
    AT("thread_frame", PyThreadState, current_frame);
#elif PY_VERSION_HEX >= 0x030b0000
    AT("thread_record", PyThreadState, cframe);
    AT("record_frame", _PyCFrame, current_frame);
    AT("record_previous", _PyCFrame, previous);
#elif PY_VERSION_HEX >= 0x030a0000
    AT("thread_record", PyThreadState, cframe);
    AT("record_previous", CFrame, previous);
#endif
}

static void say_frame(void)
{
#if PY_VERSION_HEX >= 0x030b0000
    AT("frame_previous", _PyInterpreterFrame, previous);
    AT("frame_owner", _PyInterpreterFrame, owner);
#if PY_VERSION_HEX >= 0x030d0000
    AT("frame_code", _PyInterpreterFrame, f_executable);
    AT("frame_instr", _PyInterpreterFrame, instr_ptr);
#else
    AT("frame_code", _PyInterpreterFrame, f_code);
    AT("frame_instr", _PyInterpreterFrame, prev_instr);
#endif
#if PY_VERSION_HEX < 0x030c0000
    AT("frame_flag", _PyInterpreterFrame, is_entry);
#endif
#else
    AT("frame_previous", PyFrameObject, f_back);
    AT("frame_code", PyFrameObject, f_code);
    AT("frame_instr", PyFrameObject, f_lasti);
#endif
}

static void say_code(void)
{
    AT("code_first_line", PyCodeObject, co_firstlineno);
    AT("code_file", PyCodeObject, co_filename);
#if PY_VERSION_HEX >= 0x030b0000
    AT("code_name", PyCodeObject, co_qualname);
    AT("code_start", PyCodeObject, co_code_adaptive);
#else
    AT("code_name", PyCodeObject, co_name);
#endif
#if PY_VERSION_HEX >= 0x030a0000
    AT("code_lines", PyCodeObject, co_linetable);
#else
    AT("code_lines", PyCodeObject, co_lnotab);
#endif
#if PY_VERSION_HEX >= 0x030c0000
    AT("code_version", PyCodeObject, co_version);
#endif
    SAY("text_ascii", sizeof(PyASCIIObject));
    SAY("text_wide", sizeof(PyCompactUnicodeObject));
    AT("text_length", PyASCIIObject, length);
    AT("text_hash", PyASCIIObject, hash);
    AT("text_state", PyASCIIObject, state);
    AT("bytes_length", PyVarObject, ob_size);
    AT("bytes_start", PyBytesObject, ob_sval);
}

int main(void)
{
    say_thread();
    say_frame();
    say_code();
    return 0;
}
