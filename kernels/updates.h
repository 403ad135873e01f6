// Updates of optimizers, element by element over all parameters at once.
//
// s is a number; those that are the same for all elements come as arrays of one.
#pragma once

#include "functions.h"

namespace eg {

// w - rate (g + decay w)
struct sgd {
  static constexpr char OPERANDS[] = "ssss>s";
  template <class T> EG_FN T operator()(T w, T g, T rate, T decay) const {
    return w - rate * (g + decay * w);
  }
};

struct momentum {
  static constexpr char OPERANDS[] = "ssssss>ss";
  static constexpr int RESULTS = 2;
  template <class T>
  EG_FN void operator()(T w, T g, T velocity, T keep, T rate, T decay, T& w_next,
                        T& velocity_next) const {
    velocity_next = velocity * keep + (g + decay * w);
    w_next = w - rate * velocity_next;
  }
};

// Adam, by Kingma and Ba (2015), as eagergrad/optim.py writes it: mu and nu are kept
// without their factors 1 - beta, which are in rate and epsilon.
struct adam {
  static constexpr char OPERANDS[] = "sssssssss>sss";
  static constexpr int RESULTS = 3;
  template <class T>
  EG_FN void operator()(T w, T g, T mu, T nu, T beta_1, T beta_2, T rate, T epsilon,
                        T decay, T& w_next, T& mu_next, T& nu_next) const {
    mu_next = mu * beta_1 + g;
    nu_next = nu * beta_2 + g * g;
    w_next = w - (rate * (mu_next / (sqrt(nu_next) + epsilon)) + decay * w);
  }
};

}  // namespace eg
