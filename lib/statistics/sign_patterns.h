// A group of patterns of signs, small enough to go through and large enough to test with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trainopt {

/// The column of an element, 1 … 2^bits − 1: pattern `word` flips the element where the words `word` and column share
/// an odd number of bits. Exclusive or of words is then the product of patterns, so 2^bits patterns are a group. The
/// first `bits` elements have a bit of their own, so that few elements have all patterns; `key` chooses the others'
/// columns.
size_t pattern_column(size_t element, size_t bits, uint64_t key);

/// values[w] becomes the sum over c of values[c]·(−1)^(number of bits that w and c share): the fast Walsh–Hadamard
/// transform, over a power of two of values. From sums by column to the signed sum of every pattern.
void walsh_hadamard(std::vector<double>& values);

}  // namespace trainopt
