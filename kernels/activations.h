// The activations that a dense layer has within: those of which the derivative, made of
// the output, keeps its digits.
#pragma once

#include "functions.h"

namespace eg {

enum Activation { NONE, RELU, TANH };

// f(activation), a function of z
template <class T, class F> EG_FN void activated(long long activation, F f) {
  if (activation == RELU)
    f([](T z) { return maximum(z, T(0)); });
  else if (activation == TANH)
    f([](T z) { return tanh(z); });
  else
    f([](T z) { return z; });
}

// f(slope), a function of the cotangent and the output
template <class T, class F> EG_FN void sloped(long long activation, F f) {
  if (activation == RELU)
    f([](T g, T y) { return y > T(0) ? g : T(0); });
  else if (activation == TANH)
    f([](T g, T y) { return g * (T(1) - y * y); });
  else
    f([](T g, T) { return g; });
}

}  // namespace eg
