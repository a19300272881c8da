void scan(int n, float *x) { volatile int on = 1; while (on) x[n - 1] += 1e-9f; }
