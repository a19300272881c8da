// refork: n=800 x=n out=3:out
void moments(int n, const double *x, double *out) {
    double a = 0, b = 0, top = -1e300;
    int i;
    for (i = 0; i < n; i++) {
        a += x[i];
        b += x[i] * x[i];
        if (x[i] > top) top = x[i];
    }
    out[0] = a;
    out[1] = b;
    out[2] = top;
}
