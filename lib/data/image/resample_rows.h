// The two inner loops of resample(), with AVX2: resizing a row, and summing rows into an output row.
#pragma once

#include "data/image/normalization.h"
#include "data/image/resample_table.h"

namespace trainopt {

/// Requests the `count` columns `index`, `index + step`, ... of a resized row. `row` is interleaved and begins at input
/// sample `row_begin`; 3 × taps + 16 bytes after the last used sample must be readable (their values do not matter).
struct RowRequest {
  const uint8_t* row;
  int64_t row_begin;
  int64_t index, step, count;
};

/// Bytes that must be accessible after the pixels of a row that these functions write or read.
inline constexpr int64_t kRowSlack = 32;

void resize_row_interleaved(const ResampleTable& table, const RowRequest& request, uint8_t* out);
/// Writes the three channels to out, out + plane and out + 2 × plane.
void resize_row_planar(const ResampleTable& table, const RowRequest& request, uint8_t* out, int64_t plane);

/// A sum of `taps` rows of `length` bytes each (kRowSlack more must be readable), with their weights.
struct RowSum {
  const uint8_t* const* rows;
  int64_t offset;  ///< the first byte used in each row
  const int32_t* coefficients;
  int64_t taps;
  int64_t length;
};

void sum_rows_u8(const RowSum& sum, uint8_t* out);
/// Byte i belongs to channel i % 3.
void sum_rows_f32_interleaved(const RowSum& sum, const Normalization& normalization, float* out);
/// All bytes belong to `channel`.
void sum_rows_f32_plane(const RowSum& sum, const Normalization& normalization, int channel, float* out);

}  // namespace trainopt
