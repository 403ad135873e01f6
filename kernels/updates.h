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

// Steps with a loss scale: of gradients times unit, and not made at all where ok is 0.
struct scaled_sgd {
  static constexpr char OPERANDS[] = "ssssss>s";
  template <class T>
  EG_FN T operator()(T w, T g, T rate, T decay, T ok, T unit) const {
    const T next = sgd()(w, g * unit, rate, decay);
    return ok != T(0) ? next : w;
  }
};

struct scaled_momentum {
  static constexpr char OPERANDS[] = "ssssssss>ss";
  static constexpr int RESULTS = 2;
  template <class T>
  EG_FN void operator()(T w, T g, T velocity, T keep, T rate, T decay, T ok, T unit,
                        T& w_next, T& velocity_next) const {
    T w_made, velocity_made;
    momentum()(w, g * unit, velocity, keep, rate, decay, w_made, velocity_made);
    w_next = ok != T(0) ? w_made : w;
    velocity_next = ok != T(0) ? velocity_made : velocity;
  }
};

struct scaled_adam {
  static constexpr char OPERANDS[] = "sssssssssss>sss";
  static constexpr int RESULTS = 3;
  template <class T>
  EG_FN void operator()(T w, T g, T mu, T nu, T beta_1, T beta_2, T rate, T epsilon,
                        T decay, T ok, T unit, T& w_next, T& mu_next,
                        T& nu_next) const {
    T w_made, mu_made, nu_made;
    adam()(w, g * unit, mu, nu, beta_1, beta_2, rate, epsilon, decay, w_made, mu_made,
           nu_made);
    w_next = ok != T(0) ? w_made : w;
    mu_next = ok != T(0) ? mu_made : mu;
    nu_next = ok != T(0) ? nu_made : nu;
  }
};

// Adam's count of steps, with this one, and the factors that depend on it.  kept_1 and
// kept_2 are 1 - beta, which float rounds less than beta; the powers are of doubles, as
// 1 - beta^t has few digits while t is small.
struct adam_factors {
  static constexpr char OPERANDS[] = "ssssss>sss";
  static constexpr int RESULTS = 3;
  template <class T>
  EG_FN void operator()(T count, T ok, T rate, T epsilon, T kept_1, T kept_2, T& next,
                        T& factor, T& epsilon_next) const {
    next = ok != T(0) ? count + T(1) : count;
    const double t = ok != T(0) ? double(next) : 1.0;
    const double c =
        sqrt(-expm1(t * log1p(-double(kept_2))) / double(kept_2));
    const double share = double(kept_1) / -expm1(t * log1p(-double(kept_1)));
    factor = T(double(rate) * c * share);
    epsilon_next = T(c * double(epsilon));
  }
};

}  // namespace eg
