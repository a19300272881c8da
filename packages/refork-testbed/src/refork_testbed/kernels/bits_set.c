// refork: n=600 x=n:in:index:1000000
long bits_set(int n, const unsigned *x) {
    long total = 0;
    for (int i = 0; i < n; i++) {
        unsigned v = x[i];
        while (v) {
            v &= v - 1;
            total++;
        }
    }
    return total;
}
