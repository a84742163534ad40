// e^x for vectors V; the rules of kernels/cpu/row_loops.h apply.
#pragma once

namespace trainopt::kernels {

/// e^x for x ≤ 0, with relative error below 3e-7; 0 below −87, where the normal numbers of float32 end; NaN stays NaN.
/// x = n · ln 2 + r; e^r is the minimax polynomial of degree 5 for relative error in [−ln 2 / 2, ln 2 / 2], with error
/// 9.2e-8 (Lawson's algorithm, constant term fixed at 1).
template <class V>
typename V::Numbers exponential(typename V::Numbers x) {
  using Numbers = typename V::Numbers;
  const Numbers n = V::rounded(x * V::of(1.44269504f));
  const Numbers r =
      V::multiply_add(n, V::of(1.90465430e-9f), V::multiply_add(n, V::of(-0.693147182f), x));  // ln 2 in two parts
  Numbers y = V::multiply_add(r, V::of(8.29027264e-3f), V::of(4.18981630e-2f));
  y = V::multiply_add(r, y, V::of(0.166676381f));
  y = V::multiply_add(r, y, V::of(0.499991478f));
  y = V::multiply_add(r, y, V::of(0.999999706f));
  y = V::multiply_add(r, y, V::of(1));
  return V::except(V::greater(V::of(-87), x), V::times_two_to(y, n));
}

/// 2^x for −300 ≤ x ≤ 0, in fewer instructions; 0 where the normal numbers end. The relative error is 7e-8 · (1 − x) +
/// 1e-7, or 3e-6 if kShort. x = n + r; 2^r is such a polynomial as above, of degree 5 or 4.
template <class V, bool kShort>
typename V::Numbers power_of_two(typename V::Numbers x) {
  using Numbers = typename V::Numbers;
  const Numbers n = V::rounded(x), r = x - n;
  Numbers y;
  if constexpr (kShort) {
    y = V::multiply_add(r, V::of(9.58285294e-3f), V::of(5.59064262e-2f));
    y = V::multiply_add(r, y, V::of(0.240240991f));
    y = V::multiply_add(r, y, V::of(0.693124175f));
  } else {
    y = V::multiply_add(r, V::of(1.32647273e-3f), V::of(9.67151299e-3f));
    y = V::multiply_add(r, y, V::of(5.55073358e-2f));
    y = V::multiply_add(r, y, V::of(0.240222424f));
    y = V::multiply_add(r, y, V::of(0.693147004f));
  }
  return V::times_two_to_or_zero(V::multiply_add(r, y, V::of(1)), n);
}

}  // namespace trainopt::kernels
