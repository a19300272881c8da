// refork: n=1200 x=n:inout
void clipped(unsigned n, float *x) {
    for (unsigned i = 0; i < n; ++i) x[i] = x[i] < 0 ? 0 : x[i] > 0.5f ? 0.5f : x[i];
}
