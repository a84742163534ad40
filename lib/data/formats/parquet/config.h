// `data.parquet`: which columns and rows of a Parquet file are used.
#pragma once

#include "config/describe.h"

namespace trainopt {

struct ParquetFilter {
  std::optional<std::string> column;
  std::optional<double> min, max;
};

template <class V>
void describe(V& v, ParquetFilter& c) {
  v.field("column", c.column, "Column of numbers; null: all rows are used.");
  v.field("min", c.min, "Smallest value of the rows that are used; null: no limit.");
  v.field("max", c.max, "Largest value of the rows that are used; null: no limit.");
}

struct ParquetConfig {
  std::optional<std::string> image, label;
  ParquetFilter filter;
};

template <class V>
void describe(V& v, ParquetConfig& c) {
  v.field("image", c.image,
          "Column with the images: JPEG or PNG files, or lists of rows of pixels; null: image, img, or the only column "
          "of bytes.");
  v.field("label", c.label, "Column with the labels, integers from 0 on; null: label, or the only column of integers.");
  v.section("filter", c.filter, "Use only rows whose value is within limits.");
}

}  // namespace trainopt
