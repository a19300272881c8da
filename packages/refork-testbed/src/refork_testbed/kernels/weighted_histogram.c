// refork: n=800 bins=16 x=n:in:index:bins w=n h=bins:out
void weighted_histogram(int n, int bins, const unsigned char *x, const float *w, float *h) {
    for (int i = 0; i < bins; i++) h[i] = 0.0f;
    for (int i = 0; i < n; i++) h[x[i]] += w[i];
}
