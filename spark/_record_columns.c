/* The columns of records, as Arrow lays them out. numpy_columns.py is the specification: tests compare both.
 *
 * One function, without state of its own. It reads only the caller's buffers, keeps nothing and never releases
 * the interpreter lock, so the buffers cannot change meanwhile. Records are parsed twice: first to check them
 * and to find out how much there is, then to copy. Positions are never kept for all records: most of the work
 * is to move bytes, and the second pass finds what it parses in the processor's cache.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define SMALLEST_RECORD_BYTES 7

typedef struct {
    const uint8_t *at;
    const uint8_t *end; /* nothing at or after it is read */
} Cursor;

/* The records of one batch. */
typedef struct {
    Py_buffer view;
    Py_ssize_t start, end; /* of the records in the view */
    Py_ssize_t count;
    long long base_offset, base_timestamp, max_timestamp;
    int is_append_time;
} Span;

typedef struct {
    int64_t offset, timestamp_ms;
    const uint8_t *key, *value;
    int64_t key_length, value_length; /* -1: null */
    int64_t header_count;
    Cursor headers;
} Record;

/* One column of byte strings to be. */
typedef struct {
    Py_ssize_t count, size; /* of strings, of their bytes: found by the first pass */
    bool has_nulls;
    PyObject *bounds, *data, *valid; /* bytes objects */
    int32_t *bound;                  /* where the next string begins */
    uint8_t *to, *valid_bits;
    Py_ssize_t row;
} Strings;

/* What is read, and what has been found. */
typedef struct {
    int64_t first, last; /* offsets: from the first up to, not including, the last */
    bool wants_key, wants_value, wants_headers;
    Py_ssize_t rows;
    Strings keys, values, header_keys, header_values;
} Columns;

/* A zigzag varint of at most ten bytes; bits beyond the 64th are dropped, as in varints.read_varints. */
static inline bool read_varint(Cursor *cursor, int64_t *value)
{
    uint64_t raw = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (cursor->at >= cursor->end)
            return false;
        uint64_t byte = *cursor->at++;
        raw |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return true;
        }
    }
    return false;
}

/* Sums that wrap around, as those of numpy. */
static inline int64_t sum(int64_t one, int64_t other)
{
    return (int64_t)((uint64_t)one + (uint64_t)other);
}

/* A length, then so many bytes. `least` is the least length allowed: -1 is null. */
static inline bool read_string(Cursor *cursor, int64_t least, const uint8_t **bytes, int64_t *length)
{
    if (!read_varint(cursor, length) || *length < least || *length > cursor->end - cursor->at)
        return false;
    *bytes = cursor->at;
    cursor->at += *length > 0 ? *length : 0;
    return true;
}

static inline bool read_record(Cursor *cursor, const Span *span, Record *record)
{
    int64_t length, timestamp_delta, offset_delta;
    if (!read_varint(cursor, &length) || length < 1 || length > cursor->end - cursor->at)
        return false;
    Cursor own = {cursor->at + 1, cursor->at + length}; /* after its attributes, which are unused */
    if (!read_varint(&own, &timestamp_delta) || !read_varint(&own, &offset_delta)
        || !read_string(&own, -1, &record->key, &record->key_length)
        || !read_string(&own, -1, &record->value, &record->value_length)
        || !read_varint(&own, &record->header_count) || record->header_count < 0)
        return false;
    if (record->header_count == 0 && own.at != own.end)
        return false;
    record->offset = sum(span->base_offset, offset_delta);
    record->timestamp_ms
        = span->is_append_time ? span->max_timestamp : sum(span->base_timestamp, timestamp_delta);
    record->headers = own;
    cursor->at += length;
    return true;
}

static inline bool is_wanted(const Columns *columns, const Record *record)
{
    return record->offset >= columns->first && record->offset < columns->last;
}

static inline void count_string(Strings *strings, int64_t length)
{
    strings->count++;
    if (length < 0)
        strings->has_nulls = true;
    else
        strings->size += length;
}

static bool count_headers(Columns *columns, const Record *record)
{
    Cursor cursor = record->headers;
    const uint8_t *bytes;
    int64_t length;
    for (int64_t left = record->header_count; left > 0; left--) {
        if (!read_string(&cursor, 0, &bytes, &length))
            return false;
        count_string(&columns->header_keys, length);
        if (!read_string(&cursor, -1, &bytes, &length))
            return false;
        count_string(&columns->header_values, length);
    }
    return cursor.at == cursor.end;
}

/* Reports the span in which something is wrong. */
static bool fail(Py_ssize_t span, const char *what)
{
    PyObject *found = Py_BuildValue("(ns)", span, what);
    if (found != NULL)
        PyErr_SetObject(PyExc_ValueError, found);
    Py_XDECREF(found);
    return false;
}

static bool fail_headers(Py_ssize_t span, int64_t offset)
{
    char what[64];
    PyOS_snprintf(what, sizeof what, "offset %lld has malformed headers", (long long)offset);
    return fail(span, what);
}

static inline Cursor records_of(const Span *span)
{
    const uint8_t *body = span->view.buf;
    return (Cursor){body + span->start, body + span->end};
}

static bool check(Columns *columns, const Span *spans, Py_ssize_t span_count)
{
    for (Py_ssize_t index = 0; index < span_count; index++) {
        const Span *span = &spans[index];
        Cursor cursor = records_of(span);
        Record record;
        if (span->count < 0 || span->count > (cursor.end - cursor.at) / SMALLEST_RECORD_BYTES)
            return fail(index, "its records do not fill it");
        for (Py_ssize_t left = span->count; left > 0; left--) {
            if (!read_record(&cursor, span, &record))
                return fail(index, "a record is malformed");
            if (!is_wanted(columns, &record))
                continue;
            columns->rows++;
            if (columns->wants_key)
                count_string(&columns->keys, record.key_length);
            if (columns->wants_value)
                count_string(&columns->values, record.value_length);
            if (columns->wants_headers && !count_headers(columns, &record))
                return fail_headers(index, record.offset);
        }
        if (cursor.at != cursor.end)
            return fail(index, "its records do not fill it");
    }
    return true;
}

/* Bytes that are filled before anybody else sees them; NULL with an error set. */
static PyObject *new_bytes(Py_ssize_t size)
{
    return PyBytes_FromStringAndSize(NULL, size);
}

static PyObject *new_bits(Py_ssize_t count)
{
    PyObject *bits = new_bytes((count + 7) / 8);
    if (bits != NULL)
        memset(PyBytes_AsString(bits), 0, (size_t)(count + 7) / 8);
    return bits;
}

static bool allocate(Strings *strings)
{
    if (strings->size > INT32_MAX || strings->count >= INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a column of more than two gigabytes");
        return false;
    }
    strings->bounds = new_bytes((strings->count + 1) * (Py_ssize_t)sizeof(int32_t));
    strings->data = new_bytes(strings->size);
    if (strings->bounds == NULL || strings->data == NULL)
        return false;
    strings->bound = (int32_t *)(void *)PyBytes_AsString(strings->bounds);
    strings->bound[0] = 0;
    strings->to = (uint8_t *)PyBytes_AsString(strings->data);
    if (!strings->has_nulls) {
        strings->valid = Py_None;
        Py_INCREF(Py_None);
        return true;
    }
    strings->valid = new_bits(strings->count);
    if (strings->valid == NULL)
        return false;
    strings->valid_bits = (uint8_t *)PyBytes_AsString(strings->valid);
    return true;
}

static inline void put_string(Strings *strings, const uint8_t *bytes, int64_t length)
{
    if (length > 0) {
        memcpy(strings->to, bytes, (size_t)length);
        strings->to += length;
    }
    strings->bound[1] = strings->bound[0] + (int32_t)(length > 0 ? length : 0);
    strings->bound++;
    if (strings->has_nulls) {
        if (length >= 0)
            strings->valid_bits[strings->row >> 3] |= (uint8_t)(1 << (strings->row & 7));
        strings->row++;
    }
}

static void put_headers(Columns *columns, const Record *record)
{
    Cursor cursor = record->headers;
    const uint8_t *key, *value;
    int64_t key_length, value_length;
    for (int64_t left = record->header_count; left > 0; left--) {
        if (!read_string(&cursor, 0, &key, &key_length)
            || !read_string(&cursor, -1, &value, &value_length))
            return;
        put_string(&columns->header_keys, key, key_length);
        put_string(&columns->header_values, value, value_length);
    }
}

/* The columns of numbers to be; bytes objects. */
typedef struct {
    PyObject *offsets, *timestamps_us, *types, *header_bounds, *has_headers;
} Numbers;

static bool allocate_all(Columns *columns, Numbers *numbers)
{
    Py_ssize_t rows = columns->rows, with_headers = columns->wants_headers ? rows : 0;
    numbers->offsets = new_bytes(rows * (Py_ssize_t)sizeof(int64_t));
    numbers->timestamps_us = new_bytes(rows * (Py_ssize_t)sizeof(int64_t));
    numbers->types = new_bytes(rows * (Py_ssize_t)sizeof(int32_t));
    numbers->header_bounds = new_bytes((with_headers + 1) * (Py_ssize_t)sizeof(int32_t));
    numbers->has_headers = new_bits(with_headers);
    return numbers->offsets && numbers->timestamps_us && numbers->types && numbers->header_bounds
        && numbers->has_headers && allocate(&columns->keys) && allocate(&columns->values)
        && allocate(&columns->header_keys) && allocate(&columns->header_values);
}

static void fill(Columns *columns, const Numbers *numbers, const Span *spans, Py_ssize_t span_count)
{
    /* A bytes object is as aligned as what malloc gives. */
    int64_t *offsets = (int64_t *)(void *)PyBytes_AsString(numbers->offsets);
    int64_t *timestamps_us = (int64_t *)(void *)PyBytes_AsString(numbers->timestamps_us);
    int32_t *types = (int32_t *)(void *)PyBytes_AsString(numbers->types);
    int32_t *header_bounds = (int32_t *)(void *)PyBytes_AsString(numbers->header_bounds);
    uint8_t *has_headers = (uint8_t *)PyBytes_AsString(numbers->has_headers);
    Py_ssize_t row = 0;
    header_bounds[0] = 0;
    for (Py_ssize_t index = 0; index < span_count; index++) {
        const Span *span = &spans[index];
        Cursor cursor = records_of(span);
        Record record;
        for (Py_ssize_t left = span->count; left > 0; left--) {
            if (!read_record(&cursor, span, &record) || !is_wanted(columns, &record))
                continue;
            offsets[row] = record.offset;
            timestamps_us[row] = (int64_t)((uint64_t)record.timestamp_ms * 1000);
            types[row] = span->is_append_time ? 1 : 0;
            if (columns->wants_key)
                put_string(&columns->keys, record.key, record.key_length);
            if (columns->wants_value)
                put_string(&columns->values, record.value, record.value_length);
            if (columns->wants_headers) {
                header_bounds[row + 1] = header_bounds[row] + (int32_t)record.header_count;
                if (record.header_count > 0) {
                    put_headers(columns, &record);
                    has_headers[row >> 3] |= (uint8_t)(1 << (row & 7));
                }
            }
            row++;
        }
    }
}

static PyObject *strings_result(const Strings *strings)
{
    return Py_BuildValue("(nOOO)", strings->count, strings->valid, strings->bounds, strings->data);
}

static PyObject *result_of(const Columns *columns, const Numbers *numbers)
{
    return Py_BuildValue(
        "(nOOONN(OONN))", columns->rows, numbers->offsets, numbers->timestamps_us, numbers->types,
        strings_result(&columns->keys), strings_result(&columns->values), numbers->has_headers,
        numbers->header_bounds, strings_result(&columns->header_keys),
        strings_result(&columns->header_values));
}

static void release(Strings *strings)
{
    Py_XDECREF(strings->bounds);
    Py_XDECREF(strings->data);
    Py_XDECREF(strings->valid);
}

static bool read_span(PyObject *given, Span *span)
{
    if (!PyArg_ParseTuple(
            given, "y*nnnLLLp", &span->view, &span->start, &span->end, &span->count, &span->base_offset,
            &span->base_timestamp, &span->max_timestamp, &span->is_append_time))
        return false;
    if (span->start < 0 || span->end < span->start || span->end > span->view.len) {
        PyBuffer_Release(&span->view);
        PyErr_SetString(PyExc_IndexError, "the records lie outside of their buffer");
        return false;
    }
    return true;
}

static PyObject *decode(Columns *columns, const Span *spans, Py_ssize_t span_count)
{
    Numbers numbers = {0};
    PyObject *result = NULL;
    if (check(columns, spans, span_count) && allocate_all(columns, &numbers)) {
        fill(columns, &numbers, spans, span_count);
        result = result_of(columns, &numbers);
    }
    Py_XDECREF(numbers.offsets);
    Py_XDECREF(numbers.timestamps_us);
    Py_XDECREF(numbers.types);
    Py_XDECREF(numbers.header_bounds);
    Py_XDECREF(numbers.has_headers);
    release(&columns->keys);
    release(&columns->values);
    release(&columns->header_keys);
    release(&columns->header_values);
    return result;
}

PyDoc_STRVAR(
    columns_of_doc,
    "columns_of(spans, start, end, wants_key, wants_value, wants_headers)\n--\n\n"
    "The columns of all records at offsets from `start` up to `end`, as the bytes of Arrow's buffers.\n"
    "ValueError (number of the span, what is wrong) for a malformed record.");

static PyObject *columns_of(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *given;
    long long first, last;
    int wants_key, wants_value, wants_headers;
    if (!PyArg_ParseTuple(
            arguments, "O!LLppp", &PyList_Type, &given, &first, &last, &wants_key, &wants_value,
            &wants_headers))
        return NULL;
    Py_ssize_t count = PyList_Size(given), read = 0;
    Span *spans = PyMem_Calloc((size_t)count + 1, sizeof(Span));
    if (spans == NULL)
        return PyErr_NoMemory();
    Columns columns = {
        .first = first,
        .last = last,
        .wants_key = wants_key,
        .wants_value = wants_value,
        .wants_headers = wants_headers,
    };
    while (read < count && read_span(PyList_GetItem(given, read), &spans[read]))
        read++;
    PyObject *result = read == count ? decode(&columns, spans, count) : NULL;
    while (read > 0)
        PyBuffer_Release(&spans[--read].view);
    PyMem_Free(spans);
    return result;
}

static PyMethodDef methods[] = {
    {"columns_of", columns_of, METH_VARARGS, columns_of_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_record_columns", "Records to columns, compiled.", 0, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__record_columns(void)
{
    return PyModule_Create(&definition);
}
