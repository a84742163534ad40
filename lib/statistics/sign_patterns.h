// A group of sign patterns, small enough to enumerate and large enough to test with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trainopt {

/// The column of an element, 1 … 2^bits − 1: pattern `word` flips the element if `word` and the column share an odd
/// number of set bits. The exclusive or of two words is then the product of their patterns, so the 2^bits patterns are
/// a group. Each of the first `bits` elements has a bit of its own, so that up to `bits` elements have all patterns;
/// `key` chooses the columns of the others.
size_t pattern_column(size_t element, size_t bits, uint64_t key);

/// values[w] becomes the sum over c of values[c]·(−1)^(number of set bits that w and c share): the fast Walsh–Hadamard
/// transform in place; the number of values is a power of two. Turns sums by column into the signed sum of every
/// pattern.
void walsh_hadamard(std::vector<double>& values);

}  // namespace trainopt
