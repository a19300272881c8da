// refork: n=500 taps=17 x=n+taps w=taps y=n:out
void finite_response(int n, int taps, const float *x, const float *w, float *y) {
    for (int i = 0; i < n; i++) {
        y[i] = 0;
        for (int k = 0; k < taps; k++) y[i] += x[i + k] * w[k];
    }
}
