// refork: n=60 x=n:inout
void insertion(int n, int *x) {
    for (int i = 1; i < n; i++) {
        int v = x[i], j = i - 1;
        for (; j >= 0 && x[j] > v; j--) x[j + 1] = x[j];
        x[j + 1] = v;
    }
}
