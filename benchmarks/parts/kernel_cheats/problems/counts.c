// refork: n=20000 x=n:in:index:64 h=64:out
void counts(int n, const int *x, int *h) {
    for (int k = 0; k < 64; k++) h[k] = 0;
    for (int i = 0; i < n; i++) h[x[i]]++;
}
