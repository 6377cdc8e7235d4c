/* Records: validates them without reading their contents, and encodes them. */
#include "fields.h"

/* ---- validation -------------------------------------------------------------------------------------------------- */

enum { REPORTED_MAX = 1000, RELEASE_SIZE_MIN = 1 << 16 };

typedef struct {
    int64_t base_timestamp, last_offset_delta, record_count, earliest, latest, highest;
    int without_key_count, out_of_range_count;
    int32_t without_key[REPORTED_MAX];
    struct {
        int32_t index;
        int64_t timestamp;
    } out_of_range[REPORTED_MAX];
} Check;

/* Check all records; true if they are valid. Does not use Python's API. */
static int check_all(Bytes at, Bytes end, Check *check)
{
    int64_t previous = -1;
    check->highest = INT64_MIN;
    for (int32_t index = 0; index < check->record_count; index++) {
        Fields fields;
        int64_t timestamp;
        if (!read_fields(&at, end, previous, check->last_offset_delta, &fields) ||
            __builtin_add_overflow(check->base_timestamp, fields.timestamp_delta, &timestamp))
            return 0;
        previous = fields.offset_delta;
        if (timestamp > check->highest)
            check->highest = timestamp;
        if ((timestamp < check->earliest || timestamp > check->latest) && timestamp != NO_TIMESTAMP &&
            check->out_of_range_count < REPORTED_MAX) {
            check->out_of_range[check->out_of_range_count].index = index;
            check->out_of_range[check->out_of_range_count++].timestamp = timestamp;
        }
        if (fields.key.size < 0 && check->without_key_count < REPORTED_MAX)
            check->without_key[check->without_key_count++] = index;
        Bytes headers = fields.headers;
        for (int64_t i = 0; i < fields.header_count; i++) {
            Span name, value;
            if (!read_header(&headers, fields.end, &name, &value))
                return 0;
        }
        if (headers != fields.end)
            return 0;
    }
    return at == end;
}

KERNEL(check_records)
{
    Check check;
    int64_t h[5];
    if (!check_arguments(given, 6) || !get_numbers(arguments + 1, h, 5))
        return NULL;
    check.base_timestamp = h[0], check.last_offset_delta = h[1], check.record_count = h[2];
    check.earliest = h[3], check.latest = h[4];
    check.without_key_count = check.out_of_range_count = 0;
    if (check.record_count < 1 || check.record_count > INT32_MAX)
        Py_RETURN_NONE;
    Py_buffer view;
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    Bytes at = view.buf;
    int is_valid;
    if (view.len < RELEASE_SIZE_MIN) {
        is_valid = check_all(at, at + view.len, &check);
    } else {
        Py_BEGIN_ALLOW_THREADS /* this may take 100 ms in a thread of the offload */
        is_valid = check_all(at, at + view.len, &check);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    if (!is_valid)
        Py_RETURN_NONE;
    PyObject *without_key = PyList_New(0), *out_of_range = PyList_New(0);
    int failed = without_key == NULL || out_of_range == NULL;
    for (int i = 0; !failed && i < check.without_key_count; i++)
        failed = !add(without_key, PyLong_FromLong(check.without_key[i]));
    for (int i = 0; !failed && i < check.out_of_range_count; i++)
        failed = !add(out_of_range, Py_BuildValue("(iL)", (int)check.out_of_range[i].index,
                                                  (long long)check.out_of_range[i].timestamp));
    PyObject *facts = failed ? NULL : Py_BuildValue("(LOO)", (long long)check.highest, without_key, out_of_range);
    Py_XDECREF(without_key);
    Py_XDECREF(out_of_range);
    return facts;
}

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

static inline uint64_t zigzag(int64_t number)
{
    return (uint64_t)number << 1 ^ -(uint64_t)(number < 0);
}

static inline int varint_size(int64_t number)
{
    return (70 - __builtin_clzll(zigzag(number) | 1)) / 7;
}

static inline uint8_t *write_varint(uint8_t *at, int64_t number)
{
    uint64_t value = zigzag(number);
    for (; value > 0x7F; value >>= 7)
        *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

static inline uint8_t *write_span(uint8_t *at, Span span)
{
    at = write_varint(at, span.size);
    if (span.size > 0)
        memcpy(at, span.at, (size_t)span.size), at += span.size;
    return at;
}

/* Get the buffer of a `bytes` object or None; false for other types, including subclasses. Runs no Python code. */
static inline int get_span(PyObject *list, Py_ssize_t index, Span *span)
{
    PyObject *item = PyList_GetItem(list, index);
    *span = (Span){NULL, -1};
    if (item == Py_None)
        return 1;
    if (item == NULL || Py_TYPE(item) != &PyBytes_Type)
        return 0;
    span->at = (Bytes)PyBytes_AsString(item);
    span->size = PyBytes_Size(item);
    return 1;
}

/* Get the fields of a record to encode, and return its size without the length; -1 if the record needs the Python code.
 * Runs no Python code. */
static int64_t get_fields(PyObject *const *lists, Py_ssize_t index, int64_t base, Fields *fields)
{
    PyObject *timestamp = PyList_GetItem(lists[0], index), *headers = PyList_GetItem(lists[3], index);
    if (Py_TYPE(timestamp) != &PyLong_Type || Py_TYPE(headers) != &PyTuple_Type || PyTuple_Size(headers) != 0)
        return -1;
    int64_t number = PyLong_AsLongLong(timestamp);
    if ((number == -1 && PyErr_Occurred()) || __builtin_sub_overflow(number, base, &fields->timestamp_delta) ||
        !get_span(lists[1], index, &fields->key) || !get_span(lists[2], index, &fields->value))
        return -1;
    return 2 + varint_size(fields->timestamp_delta) + varint_size(index) + varint_size(fields->key.size) +
           varint_size(fields->value.size) + (fields->key.size > 0 ? fields->key.size : 0) +
           (fields->value.size > 0 ? fields->value.size : 0);
}

KERNEL(encode_records)
{
    PyObject *const *lists = arguments;
    if (!check_arguments(given, 4))
        return NULL;
    Py_ssize_t count = Py_TYPE(lists[0]) == &PyList_Type ? PyList_Size(lists[0]) : 0;
    int is_common = count > 0 && Py_TYPE(PyList_GetItem(lists[0], 0)) == &PyLong_Type;
    for (int i = 1; i < 4; i++)
        is_common = is_common && Py_TYPE(lists[i]) == &PyList_Type && PyList_Size(lists[i]) == count;
    int64_t base = is_common ? PyLong_AsLongLong(PyList_GetItem(lists[0], 0)) : 0, total = HEADER_SIZE;
    Fields fields;
    for (Py_ssize_t i = 0; is_common && i < count; i++) {
        int64_t size = get_fields(lists, i, base, &fields);
        is_common = size >= 0 && (total += size + varint_size(size)) <= INT32_MAX;
    }
    if (!is_common) {
        PyErr_Clear(); /* a timestamp of more than 64 bits */
        Py_RETURN_NONE;
    }
    PyObject *batch = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)total);
    if (batch == NULL)
        return NULL;
    uint8_t *at = (uint8_t *)PyByteArray_AsString(batch);
    memset(at, 0, HEADER_SIZE);
    at += HEADER_SIZE;
    for (Py_ssize_t i = 0; i < count; i++) {
        at = write_varint(at, get_fields(lists, i, base, &fields));
        *at++ = 0; /* the attributes */
        at = write_varint(write_varint(at, fields.timestamp_delta), i);
        at = write_span(write_span(at, fields.key), fields.value);
        *at++ = 0; /* no headers */
    }
    return batch;
}
