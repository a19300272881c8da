// refork: n=1500 x=n:inout
void sorted(int n, int *x) {
    for (int i = 1; i < n; i++) {
        int at = i, one = x[i];
        while (at > 0 && x[at - 1] > one) { x[at] = x[at - 1]; at--; }
        x[at] = one;
    }
}
