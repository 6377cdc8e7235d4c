/* Headers of record batches: produced batches, index entries, and fetched batches. */
#include "kernels.h"

static PyObject *new_numbers(const int64_t *numbers, Py_ssize_t count)
{
    PyObject *fields = PyTuple_New(count);
    for (Py_ssize_t i = 0; fields != NULL && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (number == NULL || PyTuple_SetItem(fields, i, number) < 0)
            Py_CLEAR(fields);
    }
    return fields;
}

static PyObject *new_header(PyObject *type, const Header *h)
{
    const int64_t numbers[HEADER_FIELDS] = {
        h->base_offset, h->length, h->leader_epoch, h->magic, h->crc, h->attributes, h->last_offset_delta,
        h->base_timestamp, h->max_timestamp, h->producer_id, h->producer_epoch, h->base_sequence, h->record_count,
    };
    return new_named(type, new_numbers(numbers, HEADER_FIELDS));
}

/* The rules of batches.check_batch for batches that need no further checks: uncompressed ones with timestamps. */
static int is_plain(Bytes at, Py_ssize_t size, const Header *h)
{
    if (h->magic != 2 || (int64_t)h->length + LENGTH_END != size || h->attributes & ~TRANSACTIONAL)
        return 0;
    if (h->record_count <= 0 || h->last_offset_delta != h->record_count - 1)
        return 0;
    if ((int64_t)h->record_count * RECORD_SIZE_MIN > size - HEADER_SIZE)
        return 0;
    if (h->base_timestamp < NO_TIMESTAMP || h->max_timestamp < h->base_timestamp || h->max_timestamp == NO_TIMESTAMP)
        return 0;
    if (h->producer_id >= 0 ? h->producer_epoch < 0 || h->base_sequence < 0
                            : h->producer_id != -1 || h->attributes & TRANSACTIONAL)
        return 0;
    return crc32c(at + CRC_START, at + size) == h->crc;
}

/* appending._continues_previous */
static int continues(const Header *h, const Header *last)
{
    uint32_t next = (uint32_t)last->base_sequence + (uint32_t)last->last_offset_delta + 1;
    return h->producer_id < 0 ||
           (h->producer_id == last->producer_id && h->producer_epoch == last->producer_epoch &&
            !((h->attributes | last->attributes) & (TRANSACTIONAL | CONTROL)) &&
            (uint32_t)h->base_sequence == (next & 0x7FFFFFFF));
}

KERNEL(place_batches)
{
    int64_t limits[4]; /* base offset, leader epoch, maximum size of a batch and of the run */
    if (!check_arguments(given, 7) || !get_numbers(arguments + 3, limits, 4))
        return NULL;
    PyObject *header_type = arguments[0], *result_type = arguments[1], *batches = arguments[2];
    if (!check_row_type(header_type) || !check_row_type(result_type))
        return NULL;
    int64_t offset = limits[0], total = 0;
    PyObject *headers = PyList_New(0), *results = PyList_New(0);
    Py_ssize_t count = PySequence_Size(batches);
    int failed = headers == NULL || results == NULL || count < 0;
    Header last = {0};
    for (Py_ssize_t i = 0; !failed && i < count; i++) {
        PyObject *batch = PySequence_GetItem(batches, i);
        if (batch == NULL) {
            failed = 1;
            break;
        }
        /* Subclasses of bytearray have already been validated, by other rules. */
        int is_usable = Py_TYPE(batch) == &PyMemoryView_Type || Py_TYPE(batch) == &PyByteArray_Type;
        Py_buffer view;
        if (!is_usable || PyObject_GetBuffer(batch, &view, PyBUF_WRITABLE) < 0) {
            PyErr_Clear(); /* read-only or not contiguous */
            Py_DECREF(batch);
            break;
        }
        uint8_t *at = view.buf;
        Header h;
        int is_next = view.len >= HEADER_SIZE && view.len <= limits[2] && (i == 0 || total + view.len <= limits[3]);
        if (is_next) {
            h = parse_header(at);
            is_next = (i == 0 || continues(&h, &last)) && is_plain(at, view.len, &h) &&
                      offset <= INT64_MAX - h.record_count;
        }
        if (is_next) {
            last = h;
            h.base_offset = offset;
            h.leader_epoch = (int32_t)limits[1];
            store64(at, (uint64_t)offset);
            store32(at + LENGTH_END, (uint32_t)h.leader_epoch);
            const int64_t result[] = {offset, offset + h.last_offset_delta, -1, 0, view.len};
            PyObject *fields = new_numbers(result, 5);
            if (fields != NULL && PyTuple_SetItem(fields, 3, PyBool_FromLong(0)) < 0)
                Py_CLEAR(fields);
            failed = !add(results, new_named(result_type, fields)) || !add(headers, new_header(header_type, &h));
            offset += h.record_count;
            total += view.len;
        }
        PyBuffer_Release(&view);
        Py_DECREF(batch);
        if (!is_next)
            break;
    }
    PyObject *placed = failed ? NULL : Py_BuildValue("(OOL)", headers, results, (long long)total);
    Py_XDECREF(headers);
    Py_XDECREF(results);
    return placed;
}

KERNEL(index_batches)
{
    int64_t state[5]; /* position, bytes since the last entry, interval, largest timestamp and its offset */
    if (!check_arguments(given, 6) || !get_numbers(arguments + 1, state, 5))
        return NULL;
    PyObject *entries = PyList_New(0);
    Py_ssize_t count = PySequence_Size(arguments[0]);
    int failed = entries == NULL || count < 0;
    for (Py_ssize_t i = 0; !failed && i < count; i++) {
        static const int FIELDS[] = {0, 1, 6, 8}; /* base offset, length, last offset delta, maximum timestamp */
        PyObject *header = PySequence_GetItem(arguments[0], i), *fields[4];
        int64_t numbers[4];
        failed = header == NULL;
        for (int field = 0; field < 4 && !failed; field++)
            failed = (fields[field] = PyTuple_GetItem(header, FIELDS[field])) == NULL;
        failed = failed || !get_numbers(fields, numbers, 4);
        Py_XDECREF(header);
        if (failed)
            break;
        int64_t size = numbers[1] + LENGTH_END, last_offset;
        if (__builtin_add_overflow(numbers[0], numbers[2], &last_offset)) {
            Py_DECREF(entries);
            Py_RETURN_NONE;
        }
        if (numbers[3] > state[3]) {
            state[3] = numbers[3];
            state[4] = last_offset;
        }
        if (state[1] > state[2]) {
            failed = !add(entries, Py_BuildValue("(LLLL)", (long long)last_offset, (long long)state[0],
                                                 (long long)state[3], (long long)state[4]));
            state[1] = 0;
        }
        state[0] += size;
        state[1] += size;
    }
    PyObject *indexed = failed ? NULL
                               : Py_BuildValue("(LL(LL)O)", (long long)state[0], (long long)state[1],
                                               (long long)state[3], (long long)state[4], entries);
    Py_XDECREF(entries);
    return indexed;
}

KERNEL(scan_batches)
{
    int64_t limits[2]; /* position of the first batch, bytes to read */
    if (!check_arguments(given, 4) || !get_numbers(arguments + 2, limits, 2) || !check_row_type(arguments[0]))
        return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(arguments[1], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *headers = PyList_New(0);
    int failed = headers == NULL;
    Bytes start = view.buf;
    int64_t position = limits[0] < 0 ? view.len : limits[0], remaining = limits[1];
    while (!failed && remaining > 0 && view.len - position >= HEADER_SIZE) {
        Header h = parse_header(start + position);
        int64_t size = (int64_t)h.length + LENGTH_END;
        if (h.magic != 2 || size < HEADER_SIZE || size > view.len - position)
            break;
        if (crc32c(start + position + CRC_START, start + position + size) != h.crc)
            break;
        failed = !add(headers, new_header(arguments[0], &h));
        position += size;
        remaining -= size;
    }
    PyBuffer_Release(&view);
    if (failed)
        Py_CLEAR(headers);
    return headers;
}
